"""OpenAI Responses as Azure serves it: another address and another header, the same items and events.

In: a `ProviderRequest` whose base URL is the Azure resource and whose model id is the name of a deployment. Out: what
`openai_responses` makes of it. Pure.
"""

from __future__ import annotations

from urllib.parse import urlencode

from makai.core.model import Model
from makai.core.secret import Secret
from makai.providers.openai_responses import OpenAIResponses

PATH = "/openai/v1"


class AzureOpenAIResponses(OpenAIResponses):
    """The codec of `POST {base_url}/openai/v1/responses`."""

    id = "azure-openai-responses"

    def url(self, model: Model) -> str:
        """The v1 address of the resource. Azure shows its URL with and without the path, so both are accepted."""
        resource = model.base_url.rstrip("/").removesuffix(PATH)
        version = model.options.get("api_version")
        query = "?" + urlencode({"api-version": version}) if version else ""
        return f"{resource}{PATH}/responses{query}"

    def credential(self, secret: Secret) -> dict[str, Secret]:
        """A key of the resource."""
        return {"api-key": secret}
