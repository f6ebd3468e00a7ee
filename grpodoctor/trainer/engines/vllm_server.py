"""vLLM over HTTP: its OpenAI-compatible server, with development endpoints for weight syncs."""

from __future__ import annotations

import shlex
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, ValidationError

from grpodoctor.errors import EngineError
from grpodoctor.support.safe_text import printable
from grpodoctor.support.validation_reasons import plain_reason
from grpodoctor.trainer.config.sections import EngineConfig
from grpodoctor.trainer.engines.vllm_backend import (
    LoadResult,
    PromptRequest,
    SamplingSettings,
    ServedModel,
    VllmResponse,
)
from grpodoctor.trainer.engines.vllm_worker import EXTENSION

_CONNECT_TIMEOUT = 5.0
_ATTEMPTS = 3
"""Attempts of a request whose connection fails; all requests are safe to repeat."""
_PAUSE = 1.0
_CONNECTIONS = 64
"""Concurrent requests; vLLM batches them."""
_NEWER = "use vLLM 0.10.2 or newer"

ResponseT = TypeVar("ResponseT", bound=BaseModel)


class _Model(BaseModel):
    id: str
    parent: str | None = None


class _Models(BaseModel):
    data: list[_Model]


class _Logprobs(BaseModel):
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]


class _Choice(BaseModel):
    index: int
    token_ids: list[int]
    logprobs: _Logprobs


class _Completion(BaseModel):
    choices: list[_Choice]


class _Results(BaseModel):
    results: list[dict[str, object]]


class _Reset(BaseModel):
    success: bool = True


def serve_command(model: str, url: str = "") -> str:
    """The command that starts a suitable server."""
    address = urlsplit(url or "http://127.0.0.1:8000")
    return (
        "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server "
        f"--model {shlex.quote(model)} --host {address.hostname} --port {address.port or 8000} "
        f"--worker-extension-cls {EXTENSION} --logprobs-mode processed_logprobs"
    )


class VllmServer:
    """A running server, on this machine or another.

    Raises:
        EngineError: if the server does not respond in time, or does not serve the model.
    """

    def __init__(self, engine: EngineConfig, model: str) -> None:
        self.name = engine.url
        self._timeout, self._command = engine.timeout, serve_command(model, engine.url)
        self._client = httpx2.Client(
            base_url=engine.url,
            timeout=httpx2.Timeout(engine.timeout, connect=_CONNECT_TIMEOUT, pool=None),
            limits=httpx2.Limits(max_connections=_CONNECTIONS),
            trust_env=False,  # proxies are for external addresses
        )
        self._close = weakref.finalize(self, self._client.close)
        self._wait_until_ready(engine.wait)
        self._model = self._served_name(engine.served_model)

    def describe(self) -> Sequence[ServedModel]:
        """The model that each worker serves."""
        results = self._call_workers("grpodoctor_describe", {})
        return [self._parsed(ServedModel, result) for result in results]

    def load(self, path: str) -> Sequence[LoadResult]:
        """Load a safetensors file in each worker."""
        results = self._call_workers("grpodoctor_load", {"path": path})
        return [self._parsed(LoadResult, result) for result in results]

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache; vLLM refuses while requests of other clients are running."""
        for _ in range(_ATTEMPTS):
            response = self._request("POST", "/reset_prefix_cache")
            if not response.content or self._parsed(_Reset, _json(response)).success:
                return
            time.sleep(_PAUSE)
        raise EngineError(
            "it did not empty its prefix cache, which still depends on the old weights",
            where=self.name,
            remedy="use the server for this run only, or start it with --no-enable-prefix-caching",
        )

    def sample(
        self, requests: Sequence[PromptRequest], settings: SamplingSettings
    ) -> Sequence[Sequence[VllmResponse]]:
        """The responses to each prompt, in order."""
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            return list(pool.map(lambda request: self._complete(request, settings), requests))

    def close(self) -> None:
        """Close the connections; the server keeps running."""
        self._close()

    def _complete(
        self, request: PromptRequest, settings: SamplingSettings
    ) -> Sequence[VllmResponse]:
        body = {
            "model": self._model,
            "prompt": list(request.prompt),
            "n": request.responses,
            "seed": request.seed,
            "max_tokens": settings.max_length,
            "temperature": settings.temperature,
            "stop_token_ids": list(settings.end_ids),
            "logprobs": settings.top_tokens,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,  # some tokens are no whole characters
            # Explicit, because vLLM fills in missing values from the model's generation_config.
            "top_p": settings.top_p,
            "top_k": settings.top_k or -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        response = self._request("POST", "/v1/completions", body)
        completion = self._parsed(_Completion, _json(response))
        choices = sorted(completion.choices, key=lambda choice: choice.index)
        return [self._response(choice) for choice in choices]

    def _response(self, choice: _Choice) -> VllmResponse:
        """Parse a response; with `return_tokens_as_token_ids` vLLM names a token `token_id:17`."""
        try:
            top_tokens = [
                {int(token.removeprefix("token_id:")): logprob for token, logprob in top.items()}
                for top in choice.logprobs.top_logprobs
            ]
        except ValueError as error:
            raise EngineError(
                "it returns the text of the top tokens instead of their ids",
                where=self.name,
                remedy=_NEWER,
            ) from error
        return VllmResponse(choice.token_ids, choice.logprobs.token_logprobs, top_tokens)

    def _wait_until_ready(self, timeout: float) -> None:
        """Wait until the server has loaded its model."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                status = self._client.get("/health", timeout=_CONNECT_TIMEOUT).status_code
            except httpx2.RequestError as error:
                reason = _reason(error)
            else:
                if status == httpx2.codes.OK:
                    return
                reason = f"/health returns HTTP {status}"
            if time.monotonic() >= deadline:
                raise EngineError(
                    f"no vLLM server responds within {timeout:g} s: {reason}",
                    where=self.name,
                    remedy=f"start one: {self._command}",
                )
            time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))

    def _served_name(self, wanted: str) -> str:
        models = self._parsed(_Models, _json(self._request("GET", "/v1/models"))).data
        names = [model.id for model in models if model.parent is None]  # adapters have a parent
        if wanted in names or (not wanted and len(names) == 1):
            return wanted or names[0]
        problem = f"not {printable(wanted)}" if wanted else "and engine.served_model is not set"
        raise EngineError(
            f"it serves {printable(', '.join(names)) or 'no model'}, {problem}",
            where=self.name,
            remedy="set engine.served_model to the name under which it serves the policy",
        )

    def _call_workers(self, method: str, arguments: dict[str, str]) -> Sequence[dict[str, object]]:
        body = {"method": method, "kwargs": arguments}
        response = self._request("POST", "/collective_rpc", body, checked=False)
        if response.is_success:
            results = self._parsed(_Results, _json(response)).results
            if not results:
                raise EngineError(f"none of its workers responds to {method}", where=self.name)
            return results
        if response.status_code in (httpx2.codes.NOT_FOUND, httpx2.codes.METHOD_NOT_ALLOWED):
            what = "it runs without VLLM_SERVER_DEV_MODE=1, so its weights cannot be changed"
        elif "has no attribute" in response.text:
            what = "it runs without the worker extension that loads weights"
        else:
            raise self._refused(response)
        raise EngineError(what, where=self.name, remedy=f"start it with: {self._command}")

    def _request(
        self, verb: str, path: str, body: object = None, *, checked: bool = True
    ) -> httpx2.Response:
        """Send a request; repeat it if the connection fails, but not after a timeout."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = self._client.request(verb, path, json=body)
                break
            except (httpx2.ReadTimeout, httpx2.WriteTimeout) as error:
                raise EngineError(
                    f"it did not respond to {path} within {self._timeout:g} s",
                    where=self.name,
                    remedy="check its log; raise engine.timeout if it is only slow",
                ) from error
            except httpx2.RequestError as error:
                failure = error
            if attempt == _ATTEMPTS:
                raise self._lost(failure) from failure
            time.sleep(_PAUSE)
        if checked and not response.is_success:
            raise self._refused(response)
        return response

    def _lost(self, error: httpx2.RequestError) -> EngineError:
        return EngineError(
            f"the vLLM server no longer responds: {_reason(error)}",
            where=self.name,
            remedy=f"check its log; restart it, then continue with --resume: {self._command}",
        )

    def _refused(self, response: httpx2.Response) -> EngineError:
        return EngineError(
            f"{response.url.path} returns HTTP {response.status_code}: "
            f"{printable(response.text, 200)}",
            where=self.name,
            remedy="check the server's log",
        )

    def _parsed(self, form: type[ResponseT], data: object) -> ResponseT:
        try:
            return form.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            key = printable(".".join(map(str, first["loc"])))
            reason = printable(plain_reason(first["msg"]))
            raise EngineError(
                f"its response is not vLLM's: {key or 'all of it'}: {reason}",
                where=self.name,
                remedy=_NEWER,
            ) from error


def _json(response: httpx2.Response) -> object:
    try:
        return response.json()
    except ValueError:
        return None


def _reason(error: httpx2.RequestError) -> str:
    return printable(str(error), 100) or type(error).__name__
