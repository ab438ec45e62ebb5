"""The agent loop: ask the model, run what it calls for, until it has nothing more to do or must stop.

It decides when there is another turn; how a turn, a call or a summary works is in the modules beside this one.

    steering ─► limits ─► compaction if full ─► turn ─► calls ─┐
       ▲                                         │             │
       └─────────────────────────────────────────┼─────────────┘
                                                 └─► outcome

Every model call is a turn, also one that repeats a failed one. An answer that broke off and is asked for again stays in
the log as a turn that failed; none of its calls runs, and the model does not see it again.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from makai.agent import settings as limits
from makai.agent.compaction import summarised, summary_message
from makai.agent.conversation import Conversation, context_tokens
from makai.agent.host import AgentHost, Decide, Models, Recorder, Toolbox
from makai.agent.settings import AgentOutcome, AgentSettings, Limit, Standing
from makai.agent.tool_calls import CallRepeated, PreparedCall, RunDenied, ToolCalls
from makai.agent.turn import AnswerRetries, SilenceWatch, TurnAnswer, answer_of
from makai.aio.cancellation import finish_cleanup
from makai.catalog.inputs import WORDS, Medium
from makai.core.content import content_for_model
from makai.core.errors import ContextOverflow, MakaiError, ProviderError, SessionRefused
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.model import Model
from makai.core.request import Context
from makai.core.session_events import Compacted, Notice, TurnEnded, TurnStarted, UsageReported

CLEAN_UP_S = 2.0
"""How long the last facts of a cancelled run may take."""
MAX_SHOWN_ARGUMENTS = 200


async def run_agent(
    host: AgentHost,
    models: Models,
    conversation: Context,
    tools: Toolbox,
    decide: Decide,
    settings: AgentSettings,
    standing: Standing | None = None,
) -> AgentOutcome:
    """Run until the model is done, a limit is reached or something fails. A cancelled run raises `CancelledError`,
    after its tools have stopped and its last facts are logged. What the host raises passes through."""
    try:
        model = models.resolve(settings.model)
    except MakaiError as error:
        return AgentOutcome(stop_reason="error", error=error)
    recorder = Recorder(host)
    run = _Run(host, recorder, models, model, conversation, tools, decide, settings, standing or Standing())
    try:
        return await run.go()
    except asyncio.CancelledError:
        await finish_cleanup(recorder.close("aborted", "the run was aborted"), CLEAN_UP_S, "the clean-up of a run")
        raise


async def run_compaction(
    host: AgentHost,
    models: Models,
    conversation: Context,
    settings: AgentSettings,
    *,
    instructions: str = "",
    places: tuple[int, ...] = (),
) -> AgentOutcome:
    """Summarise the conversation because a user asked for it: all of it, but for the newest `settings.keep_tokens`. The
    outcome is an error when there is no summary, for the user asked for one."""
    try:
        model = models.resolve(settings.model)
    except MakaiError as error:
        return AgentOutcome(stop_reason="error", error=error)
    said = _conversation(conversation, places, host.position())
    keep = settings.keep_tokens or 0
    recorder = Recorder(host)
    retries = AnswerRetries(settings.options, recorder)
    try:
        result = await summarised(
            models, model, said, settings.options, retries, keep_tokens=keep, instructions=instructions
        )
    except asyncio.CancelledError:
        await finish_cleanup(recorder.close("aborted", "the run was aborted"), CLEAN_UP_S, "the clean-up of a run")
        raise
    if result.summary is None:
        failure = MakaiError(f"The conversation was not compacted: {result.failure}.")
        return AgentOutcome(stop_reason="error", usage=result.usage, error=failure)
    await host.emit(Compacted(summary=result.summary.text, through=result.summary.through))
    return AgentOutcome(stop_reason="end_turn", usage=result.usage)


def _conversation(context: Context, places: tuple[int, ...], position: int) -> Conversation:
    return Conversation(context.messages, places or (position,) * len(context.messages))


class _Run:
    def __init__(
        self,
        host: AgentHost,
        recorder: Recorder,
        models: Models,
        model: Model,
        context: Context,
        tools: Toolbox,
        decide: Decide,
        settings: AgentSettings,
        standing: Standing,
    ) -> None:
        self._host = host
        self._recorder = recorder
        self._models = models
        self._model = model
        self._settings = settings
        self._standing = standing
        self._tools = tools
        self._frame = msgspec.structs.replace(context, messages=())
        """What is the same in every request."""
        self._conversation = _conversation(context, standing.places, host.position())
        self._tool_calls = ToolCalls(host, recorder, decide, settings)
        self._started_at = host.now() - standing.seconds
        self._turn = standing.turns
        self._answers = standing.turns
        self._usage = standing.usage
        self._retries = AnswerRetries(settings.options, recorder)
        self._compacted_at: int | None = None
        """After how many answers a compaction was last tried."""

    async def go(self) -> AgentOutcome:
        timer = asyncio.timeout(self._seconds_left())
        try:
            async with timer:
                return await self._loop()
        except RunDenied:
            await self._recorder.close("aborted", "the run was ended when another call was denied")
            return AgentOutcome(stop_reason="aborted", usage=self._usage)
        except CallRepeated as repeated:
            return AgentOutcome(stop_reason="error", usage=self._usage, error=self._got_stuck(repeated))
        except TimeoutError:
            if not timer.expired():
                raise
        await self._recorder.close("aborted", "the time of the run was up")
        return await self._stopped_by(limits.out_of_time(self._settings))

    def _got_stuck(self, repeated: CallRepeated) -> MakaiError:
        call = repeated.call
        return ProviderError(
            f"{self._model.id} is stuck. It called {call.name} {repeated.times} times with the same arguments: "
            f"{call.arguments_json[:MAX_SHOWN_ARGUMENTS]}",
            provider_id=self._model.provider,
            hint="Say in other words what to do, or change the model.",
        )

    async def _loop(self) -> AgentOutcome:
        if (problem := limits.price_problem(self._settings, self._model)) is not None:
            if not self._settings.allow_unknown_price and self._turn == 0:  # a resumed run has begun already
                return AgentOutcome(stop_reason="error", usage=self._usage, error=problem)
            await self._notice("warning", "price_unknown", problem.message)
        if self._standing.open_calls:
            self._tool_calls.offer(await self._tools())
            calls = [await self._tool_calls.retake(fact) for fact in self._standing.open_calls]
            results = await self._tool_calls.run_all(calls)
            self._conversation.add(results, self._host.position())
        self._conversation.fill_in_results()
        while True:
            await self._take_steering()
            if limit := self._limit_reached():
                return await self._stopped_by(limit)
            await self._compact_if_full()
            answer = await self._ask()
            if answer.message is not None:
                outcome = await self._after(answer.message, answer.calls)
            else:
                outcome = await self._after_failure(answer)
            if outcome is not None:
                return outcome

    async def _take_steering(self) -> bool:
        """Whether input was read."""
        has_read = False
        for words in self._host.steering():
            try:
                await self._recorder.emit(words)
            except SessionRefused as refusal:
                if refusal.code != "INPUT_NOT_WAITING":
                    raise
                continue  # the user took it back in this moment
            has_read = True
            message = UserMessage(content=content_for_model(words.content))
            self._conversation.add((message,), self._host.position())
        return has_read

    async def _ask(self) -> TurnAnswer:
        tools = await self._tools()
        self._tool_calls.offer(tools)
        self._turn += 1
        await self._recorder.emit(TurnStarted(turn=self._turn))
        offered = tuple(tool.definition for tool in tools.values())
        context = msgspec.structs.replace(self._frame, messages=tuple(self._conversation.messages), tools=offered)
        options = limits.capped(self._settings.options, self._settings, self._usage, self._model)
        stream = self._models.stream(self._model, context, options)
        watch = SilenceWatch(self._settings.quiet_notice_s, self._notice_silence)
        return await answer_of(stream, self._recorder, self._tool_calls, watch)

    async def _after(self, message: AssistantMessage, calls: list[PreparedCall]) -> AgentOutcome | None:
        """Continue after a whole answer: None for another turn, or the outcome."""
        self._answers += 1
        self._retries.reset()
        self._usage += message.usage
        reason = message.stop_reason or "end_turn"
        await self._recorder.emit(TurnEnded(turn=self._turn, stop_reason=reason, usage=message.usage))
        await self._recorder.emit(
            UsageReported(
                total=self._standing.usage_before + self._usage,
                context_tokens=context_tokens(message.usage),
                context_window=self._model.context_window,
            )
        )
        limit = limits.spent(self._settings, self._usage)
        if limit and (calls or reason == "max_tokens"):
            await self._recorder.close("aborted", "the run reached its limit")
            return await self._stopped_by(limit)
        results = await self._tool_calls.run_all(calls) if calls else []
        self._conversation.add_answer(message, results, self._host.position())
        if calls or await self._take_steering():
            return None
        return AgentOutcome(stop_reason="end_turn" if reason == "tool_use" else reason, usage=self._usage)

    async def _after_failure(self, answer: TurnAnswer) -> AgentOutcome | None:
        """Continue after a broken answer: None for another try, or the outcome."""
        broken = answer.broken
        assert broken is not None, "an answer is whole or broken"
        self._usage += broken.usage
        retry = self._retries.next_wait(broken)
        is_final = retry is None and broken.said_something
        await self._recorder.close("error", "the model's answer broke off", broken.usage, is_final=is_final)
        too_long = f"The conversation is too long for the model ({broken.error.message})"
        if isinstance(broken.error, ContextOverflow) and await self._compact(too_long):
            return None
        if broken.blames_input and await self._drop_media():
            return None
        if await self._retries.wait(broken, retry):
            return None
        if broken.blames_input and self._conversation.asks_with_media():
            # The next run finds the message among the earlier ones, and replaces its parts when they are refused again.
            broken.error.hint = (
                f"If {self._model.id} takes no pictures or audio, send the message without them or change the model. "
                "Your next message continues without them."
            )
        return AgentOutcome(stop_reason="error", usage=self._usage, error=broken.error)

    async def _drop_media(self) -> bool:
        """Ask without the pictures and recordings of earlier messages: one that its vendor refuses must not make every
        later message fail."""

        def words(part: Medium) -> str:
            return f"[A {WORDS[type(part)][0]} was here ({part.mime_type}). {self._model.id} did not take it.]"

        if not self._conversation.drop_media(words):
            return False
        message = (
            f"{self._model.id} refused the conversation: asking again without its earlier pictures and recordings."
        )
        await self._notice("warning", "media_refused", message)
        return True

    async def _notice_silence(self) -> None:
        message = f"{self._model.id} has said nothing for {self._settings.quiet_notice_s:g} s; still waiting."
        await self._notice("info", "provider_silent", message)

    async def _compact_if_full(self) -> None:
        window = self._model.context_window
        if window is not None and self._may_compact():
            tokens = self._conversation.tokens()
            if tokens > window * self._settings.compact_at:
                await self._compact(f"The conversation has about {tokens:,} of {window:,} tokens")

    def _may_compact(self) -> bool:
        """A guard against loops: one try in `compact_every` turns, whether it helped or not."""
        return self._compacted_at is None or self._answers - self._compacted_at >= self._settings.compact_every

    async def _compact(self, why: str) -> bool:
        if not self._may_compact():
            return False
        self._compacted_at = self._answers
        await self._notice("info", "compacting", f"{why}: its older part is being summarised.")
        options = limits.capped(self._settings.options, self._settings, self._usage, self._model)
        keep = self._settings.keep_tokens
        retries = AnswerRetries(options, self._recorder)
        result = await summarised(self._models, self._model, self._conversation, options, retries, keep_tokens=keep)
        self._usage += result.usage
        if result.summary is None:
            failure = f"The conversation could not be made shorter: {result.failure}."
            await self._notice("warning", "compaction_failed", failure)
            return False
        await self._recorder.emit(Compacted(summary=result.summary.text, through=result.summary.through))
        self._conversation.replace_older(result.summary.count, summary_message(result.summary.text))
        return True

    def _seconds_left(self) -> float | None:
        most = self._settings.max_seconds
        return None if most is None else self._started_at + most - self._host.now()

    def _limit_reached(self) -> Limit | None:
        limit = limits.turns_reached(self._settings, self._answers) or limits.spent(self._settings, self._usage)
        left_s = self._seconds_left()
        return limits.out_of_time(self._settings) if not limit and left_s is not None and left_s <= 0 else limit

    async def _stopped_by(self, limit: Limit) -> AgentOutcome:
        await self._notice("warning", f"limit_{limit.kind}", limit.message)
        return AgentOutcome(stop_reason=limit.stop_reason, usage=self._usage, limit=limit.kind)

    async def _notice(self, level: Literal["info", "warning"], code: str, message: str) -> None:
        await self._recorder.emit(Notice(level=level, code=code, message=message))
