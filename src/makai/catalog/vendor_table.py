"""The vendors, as data: facts of each vendor's own documentation. No code branches on a vendor's name."""

from __future__ import annotations

from functools import cache
from typing import Any

from makai.catalog.vendors import Vendor, VendorTable
from makai.core.model import ChatQuirks
from makai.core.version import __version__

CHAT = "openai-completions"
RESPONSES = "openai-responses"
MESSAGES = "anthropic-messages"
GOOGLE = "google-generative-ai"
_V1 = {CHAT: "/v1", RESPONSES: "/v1"}
_EFFORT = ChatQuirks(max_tokens_field="max_completion_tokens", reasoning="effort")
_REPLAYED = ChatQuirks(reasoning="effort", reasoning_replay="reasoning_content")


def _compatible(id: str, name: str, root: str, prefix: str, **facts: Any) -> Vendor:
    """A vendor of OpenAI's Chat Completions at /v1; `prefix` is what the names of its variables begin with."""
    variables = {"key_variables": (f"{prefix}_API_KEY",), "base_url_variable": f"{prefix}_BASE_URL"}
    return Vendor(id=id, name=name, api=CHAT, root=root, **{"paths": {CHAT: "/v1"}, **variables, **facts})


VENDORS: tuple[Vendor, ...] = (
    Vendor(
        id="anthropic",
        name="Anthropic",
        api=MESSAGES,
        root="https://api.anthropic.com",
        paths={MESSAGES: ""},
        key_variables=("ANTHROPIC_API_KEY",),
        base_url_variable="ANTHROPIC_BASE_URL",
        tolerated_suffixes=("/v1",),
        default_model="claude-sonnet-5-5",
        aliases=("claude",),
        listing="anthropic",
    ),
    Vendor(
        id="openai",
        name="OpenAI",
        api=RESPONSES,
        root="https://api.openai.com",
        paths={RESPONSES: "/v1", CHAT: "/v1"},
        key_variables=("OPENAI_API_KEY",),
        base_url_variable="OPENAI_BASE_URL",
        default_model="gpt-6.1-sol",
        quirks=ChatQuirks(
            max_tokens_field="max_completion_tokens",
            system_role="developer",
            reasoning="effort",
            reasoning_efforts=("none", "low", "medium", "high", "xhigh"),
            strict_tools=True,
            tool_id_length=40,
            prompt_cache_key=True,
            store=True,
        ),
    ),
    Vendor(
        id="google",
        name="Google Gemini",
        api=GOOGLE,
        root="https://generativelanguage.googleapis.com",
        paths={GOOGLE: ""},
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url_variable="GEMINI_BASE_URL",
        tolerated_suffixes=("/v1beta", "/v1"),
        default_model="gemini-3.8-flash",
        aliases=("gemini",),
        listing="google",
    ),
    Vendor(
        id="google-gemini-cli",
        name="Google Gemini Code Assist",
        api="google-gemini-cli",
        root="https://cloudcode-pa.googleapis.com",
        paths={"google-gemini-cli": ""},
        key_variables=("GOOGLE_CLOUD_ACCESS_TOKEN",),
        base_url_variable="CODE_ASSIST_ENDPOINT",
        listing="none",
        option_variables={"project": ("GOOGLE_CLOUD_PROJECT",)},
    ),
    Vendor(
        id="azure",
        name="Azure OpenAI",
        api="azure-openai-responses",
        root="",  # every customer has an own resource host
        paths={"azure-openai-responses": ""},
        key_variables=("AZURE_OPENAI_API_KEY",),
        base_url_variable="AZURE_OPENAI_ENDPOINT",
        tolerated_suffixes=("/openai/v1", "/openai"),
        aliases=("azure-openai",),
        listing="none",
        option_variables={"api_version": ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")},
    ),
    _compatible(
        *("openrouter", "OpenRouter", "https://openrouter.ai/api", "OPENROUTER"),
        default_model="openrouter/auto",
        listing="openrouter",
        quirks=ChatQuirks(
            reasoning="openrouter",
            reasoning_efforts=("none", "minimal", "low", "medium", "high", "xhigh"),
            anthropic_cache_control=True,
        ),
    ),
    _compatible(
        "xai", "xAI", "https://api.x.ai", "XAI", paths=_V1, default_model="grok-4.7", aliases=("grok",), quirks=_EFFORT
    ),
    _compatible(
        *("mistral", "Mistral", "https://api.mistral.ai", "MISTRAL"),
        default_model="mistral-medium-latest",
        quirks=ChatQuirks(
            stream_usage=False,  # the last chunk has usage anyway, and unknown fields are refused
            reasoning="effort",
            reasoning_efforts=("none", "high"),
            tool_choice_required="any",
            tool_id_length=9,
            tool_id_alphanumeric=True,
            tool_result_name=True,
            user_after_tool=False,
            prompt_cache_key=True,
        ),
    ),
    _compatible(
        *("deepseek", "DeepSeek", "https://api.deepseek.com", "DEEPSEEK"),
        paths={CHAT: ""},
        default_model="deepseek-flash",
        quirks=ChatQuirks(
            reasoning="thinking_type",
            reasoning_efforts=("low", "high", "max"),
            reasoning_replay="reasoning_content",  # with tools, turns without it are refused with 400
            json_schema="json_object",
        ),
    ),
    _compatible(
        "groq", "Groq", "https://api.groq.com/openai", "GROQ", default_model="openai/gpt-oss-120b", quirks=_EFFORT
    ),
    _compatible(
        "cerebras", "Cerebras", "https://api.cerebras.ai", "CEREBRAS", default_model="gpt-oss-120b", quirks=_EFFORT
    ),
    _compatible(
        *("together", "Together AI", "https://api.together.xyz", "TOGETHER"),
        key_origins=("https://api.together.xyz", "https://api.together.ai"),
        default_model="zai-org/GLM-5.3",
        aliases=("togetherai",),
        quirks=_REPLAYED,
    ),
    _compatible(
        *("fireworks", "Fireworks AI", "https://api.fireworks.ai/inference", "FIREWORKS"),
        default_model="accounts/fireworks/models/glm-5p3",
        aliases=("fireworks-ai",),
        quirks=_REPLAYED,
    ),
    Vendor(
        id="ollama",
        name="Ollama",
        api="ollama",
        root="http://127.0.0.1:11434",
        paths={"ollama": "", CHAT: "/v1"},
        key_variables=("OLLAMA_API_KEY",),
        base_url_variable="OLLAMA_HOST",
        base_url_form="ollama_host",
        tolerated_suffixes=("/v1", "/api"),
        key_origins=("https://ollama.com",),  # the key is for the hosted service, not for the local server
        needs_key=False,
        listing="ollama",
        quirks=ChatQuirks(reasoning="effort", reasoning_efforts=("none", "low", "medium", "high")),
    ),
    _compatible(
        *("vllm", "vLLM", "http://127.0.0.1:8000", "VLLM"),
        paths=_V1,
        needs_key=False,
        quirks=ChatQuirks(reasoning="enable_thinking"),
    ),
    Vendor(
        id="llama.cpp",
        name="llama.cpp server",
        api=CHAT,
        root="http://127.0.0.1:8080",
        paths={CHAT: "/v1", RESPONSES: "/v1", MESSAGES: ""},
        key_variables=("LLAMA_API_KEY",),
        base_url_variable="LLAMA_CPP_BASE_URL",
        needs_key=False,
        aliases=("llamacpp", "llama-cpp"),
        quirks=ChatQuirks(reasoning="enable_thinking"),
    ),
    Vendor(
        id="lmstudio",
        name="LM Studio",
        api=CHAT,
        root="http://127.0.0.1:1234",
        paths={CHAT: "/v1", RESPONSES: "/v1", MESSAGES: ""},
        key_variables=("LM_STUDIO_API_KEY",),
        base_url_variable="LMSTUDIO_BASE_URL",
        needs_key=False,
        aliases=("lm-studio",),
        quirks=ChatQuirks(reasoning="effort"),
    ),
    Vendor(
        id="openai-codex",
        name="ChatGPT plan (Codex)",
        api=RESPONSES,
        root="https://chatgpt.com/backend-api/codex",
        paths={RESPONSES: ""},
        account_headers={"chatgpt-account-id": "account_id"},
        listing="none",
    ),
    Vendor(
        id="github-copilot",
        name="GitHub Copilot",
        api=CHAT,
        root="https://api.githubcopilot.com",  # the login names the address made for the subscription
        paths={CHAT: ""},
        headers={"Editor-Version": f"makai/{__version__}"},
        aliases=("copilot",),
    ),
    Vendor(
        id="local",
        name="the model on this machine",
        api=CHAT,
        root="",  # the runtime starts the server and then knows its port
        paths={CHAT: "/v1", RESPONSES: "/v1", MESSAGES: ""},
        needs_key=False,
        open_ended=False,
        default_model="smollm2-135m",
        listing="none",
    ),
    Vendor(
        id="scripted",
        name="scripted answers",
        api="scripted",
        root="",
        paths={"scripted": ""},
        needs_key=False,
        open_ended=False,
        listing="none",
    ),
)


@cache
def builtin_vendors() -> VendorTable:
    return VendorTable(VENDORS)
