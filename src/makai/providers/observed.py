"""Reports requests to providers to an `Observer`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from makai.core.errors import MakaiError
from makai.core.observation import Observer
from makai.core.stream_events import Done, Failed, Keepalive, StreamEvent


async def observed(
    batches: AsyncGenerator[Sequence[StreamEvent], None], observer: Observer, provider: str
) -> AsyncGenerator[Sequence[StreamEvent], None]:
    """The same batches. Closing it closes `batches`."""
    outcome, began = "aborted", time.perf_counter()
    observer.model_asked(provider)
    try:
        async with aclosing(batches):
            async for batch in batches:
                last = batch[-1]
                if type(last) is Done:
                    outcome = "ok"
                elif type(last) is Failed:
                    outcome = "aborted" if last.reason == "aborted" else last.error_code
                elif type(last) is Keepalive and last.retry is not None:
                    observer.model_retried(provider)
                yield batch
    except MakaiError as error:
        outcome = error.code
        raise
    finally:
        observer.model_ended(provider, outcome, time.perf_counter() - began)
