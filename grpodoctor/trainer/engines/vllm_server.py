"""vLLM behind HTTP: its OpenAI-compatible server, whose development endpoints take weights."""

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
from grpodoctor.trainer.config.sections import EngineConfig
from grpodoctor.trainer.engines.vllm_engine import (
    LoadResult,
    PromptRequest,
    SamplingSettings,
    ServedModel,
    VllmResponse,
)
from grpodoctor.trainer.engines.vllm_worker import EXTENSION

_CONNECT_TIMEOUT = 5.0
_ATTEMPTS = 3
"""Tries of a request whose connection fails: every request may be repeated."""
_PAUSE = 1.0
_CONNECTIONS = 64
"""Requests under way at once; vLLM batches them."""
_NEWER = "use vLLM 0.10.2 or newer"

AnswerT = TypeVar("AnswerT", bound=BaseModel)


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
    """How to start a server that the trainer can use.

    Args:
        model: the directory or hub name of what is trained.
        url: where it shall listen.
    """
    address = urlsplit(url or "http://127.0.0.1:8000")
    return (
        "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server "
        f"--model {shlex.quote(model)} --host {address.hostname} --port {address.port or 8000} "
        f"--worker-extension-cls {EXTENSION} --logprobs-mode processed_logprobs"
    )


class VllmServer:
    """A server that runs already, on this machine or another.

    Args:
        engine: where it is and how long to wait for it.
        model: the directory or hub name of what is trained, for advice.

    Raises:
        EngineError: if it does not answer in time, or does not serve the model asked for.
    """

    def __init__(self, engine: EngineConfig, model: str) -> None:
        self.name = engine.url
        self._timeout, self._command = engine.timeout, serve_command(model, engine.url)
        self._client = httpx2.Client(
            base_url=engine.url,
            timeout=httpx2.Timeout(engine.timeout, connect=_CONNECT_TIMEOUT, pool=None),
            limits=httpx2.Limits(max_connections=_CONNECTIONS),
            trust_env=False,  # a proxy is for what lies outside
        )
        self._close = weakref.finalize(self, self._client.close)
        self._await(engine.wait)
        self._model = self._served_name(engine.served_model)

    def describe(self) -> Sequence[ServedModel]:
        """What each worker serves."""
        results = self._call_workers("grpodoctor_describe", {})
        return [self._parsed(ServedModel, each) for each in results]

    def load(self, path: str) -> Sequence[LoadResult]:
        """Have each worker load a safetensors file."""
        results = self._call_workers("grpodoctor_load", {"path": path})
        return [self._parsed(LoadResult, each) for each in results]

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache, which waits for requests of others to end."""
        for _ in range(_ATTEMPTS):
            answer = self._request("POST", "/reset_prefix_cache")
            if not answer.content or self._parsed(_Reset, _json(answer)).success:
                return
            time.sleep(_PAUSE)
        raise EngineError(
            "it does not empty its prefix cache, which would keep the old weights",
            where=self.name,
            remedy="let nobody else use it, or start it with --no-enable-prefix-caching",
        )

    def sample(
        self, requests: Sequence[PromptRequest], terms: SamplingSettings
    ) -> Sequence[Sequence[VllmResponse]]:
        """The responses to each prompt, in order."""
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            return list(pool.map(lambda request: self._complete(request, terms), requests))

    def close(self) -> None:
        """Close the connections; the server goes on running."""
        self._close()

    def _complete(self, request: PromptRequest, terms: SamplingSettings) -> Sequence[VllmResponse]:
        body = {
            "model": self._model,
            "prompt": list(request.prompt),
            "n": request.responses,
            "seed": request.seed,
            "max_tokens": terms.max_length,
            "temperature": terms.temperature,
            "stop_token_ids": list(terms.end_ids),
            "logprobs": terms.top_tokens,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,  # some tokens have no text of their own
            # Said, because a server takes what is left open from the model's generation_config.
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        answer = self._request("POST", "/v1/completions", body)
        completion = self._parsed(_Completion, _json(answer))
        choices = sorted(completion.choices, key=lambda choice: choice.index)
        return [self._response(choice) for choice in choices]

    def _response(self, choice: _Choice) -> VllmResponse:
        """A response; vLLM writes a token whose text is not asked for as `token_id:17`."""
        try:
            top = [
                {int(token.removeprefix("token_id:")): logprob for token, logprob in each.items()}
                for each in choice.logprobs.top_logprobs
            ]
        except ValueError as error:
            raise EngineError(
                "it names the likeliest tokens by their text", where=self.name, remedy=_NEWER
            ) from error
        return VllmResponse(choice.token_ids, choice.logprobs.token_logprobs, top)

    def _await(self, longest: float) -> None:
        """Wait until the server has loaded its model."""
        until = time.monotonic() + longest
        while True:
            try:
                status = self._client.get("/health", timeout=_CONNECT_TIMEOUT).status_code
            except httpx2.RequestError as error:
                reason = _reason(error)
            else:
                if status == httpx2.codes.OK:
                    return
                reason = f"/health gives HTTP {status}"
            if time.monotonic() >= until:
                raise EngineError(
                    f"no vLLM server answers within {longest:g} s: {reason}",
                    where=self.name,
                    remedy=f"start one: {self._command}",
                )
            time.sleep(min(_PAUSE, max(0.0, until - time.monotonic())))

    def _served_name(self, wanted: str) -> str:
        models = self._parsed(_Models, _json(self._request("GET", "/v1/models"))).data
        names = [model.id for model in models if model.parent is None]  # adapters have a parent
        if wanted in names or (not wanted and len(names) == 1):
            return wanted or names[0]
        asked = f"and not {printable(wanted)}" if wanted else "of which engine.served_model is none"
        raise EngineError(
            f"it serves {printable(', '.join(names)) or 'no model'}, {asked}",
            where=self.name,
            remedy="set engine.served_model to the name under which it serves the policy",
        )

    def _call_workers(self, method: str, arguments: dict[str, str]) -> Sequence[dict[str, object]]:
        body = {"method": method, "kwargs": arguments}
        answer = self._request("POST", "/collective_rpc", body, checked=False)
        if answer.is_success:
            results = self._parsed(_Results, _json(answer)).results
            if not results:
                raise EngineError(f"no worker of it answers {method}", where=self.name)
            return results
        if answer.status_code in (httpx2.codes.NOT_FOUND, httpx2.codes.METHOD_NOT_ALLOWED):
            what = "it runs without VLLM_SERVER_DEV_MODE=1, so that nobody can change its weights"
        elif "has no attribute" in answer.text:
            what = "it runs without the extension of its workers that changes its weights"
        else:
            raise self._refused(answer)
        raise EngineError(what, where=self.name, remedy=f"start it so: {self._command}")

    def _request(
        self, verb: str, path: str, body: object = None, *, checked: bool = True
    ) -> httpx2.Response:
        """One request, repeated where the connection fails, never where the server is silent."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = self._client.request(verb, path, json=body)
                break
            except (httpx2.ReadTimeout, httpx2.WriteTimeout) as error:
                raise EngineError(
                    f"it was silent for {self._timeout:g} s after {path}",
                    where=self.name,
                    remedy="look into its log; raise engine.timeout if it is only slow",
                ) from error
            except httpx2.RequestError as error:
                failure = error
            if attempt == _ATTEMPTS:
                raise self._lost(failure) from failure
            time.sleep(_PAUSE)
        if checked and not answer.is_success:
            raise self._refused(answer)
        return answer

    def _lost(self, error: httpx2.RequestError) -> EngineError:
        return EngineError(
            f"the vLLM server no longer answers: {_reason(error)}",
            where=self.name,
            remedy=f"look into its log; start it again, then go on by --resume: {self._command}",
        )

    def _refused(self, answer: httpx2.Response) -> EngineError:
        return EngineError(
            f"{answer.url.path} gives HTTP {answer.status_code}: {printable(answer.text, 200)}",
            where=self.name,
            remedy="look into the server's log",
        )

    def _parsed(self, form: type[AnswerT], data: object) -> AnswerT:
        try:
            return form.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            key = printable(".".join(map(str, first["loc"])))
            raise EngineError(
                f"its answer is not vLLM's: {key or 'all of it'}: {printable(first['msg'])}",
                where=self.name,
                remedy=_NEWER,
            ) from error


def _json(answer: httpx2.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def _reason(error: httpx2.RequestError) -> str:
    return printable(str(error), 100) or type(error).__name__
