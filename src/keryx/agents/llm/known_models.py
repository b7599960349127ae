"""What well-known models can read, and how long their context is, by name. Used where the settings say nothing."""

import re

import msgspec

DEFAULT_CONTEXT = 32_000


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    # In tokens.
    context: int = DEFAULT_CONTEXT
    images: bool = False
    # PDF and other files as parts of a message; text files are readable by every model.
    files: bool = False
    audio: bool = False


# The beginnings of names, as regular expressions; the first that fits counts. Names are compared in lower case and without the
# provider before the last slash.
KNOWN_MODELS: tuple[tuple[str, KnownModel], ...] = (
    (r"gpt-audio|gpt-4o(-mini)?-audio", KnownModel(context=128_000, audio=True)),
    (r"gpt-5", KnownModel(context=400_000, images=True, files=True)),
    (r"gpt-4\.1", KnownModel(context=1_000_000, images=True, files=True)),
    (r"gpt-4o|chatgpt-4o", KnownModel(context=128_000, images=True, files=True)),
    (r"gpt-4-turbo", KnownModel(context=128_000, images=True)),
    (r"gpt-4", KnownModel(context=8_000)),
    (r"gpt-3\.5", KnownModel(context=16_000)),
    (r"gpt-oss", KnownModel(context=128_000)),
    (r"o1-mini|o3-mini", KnownModel(context=128_000)),
    (r"o[134]", KnownModel(context=200_000, images=True, files=True)),
    (r"claude-(instant|2)", KnownModel(context=100_000)),
    (r"claude", KnownModel(context=200_000, images=True)),
    (r"gemini-(1\.5|[2-9])|gemini-(flash|pro)", KnownModel(context=1_000_000, images=True, audio=True)),
    (r"gemma-?3:?-?(270m|1b)", KnownModel(context=32_000)),
    (r"gemma-?3", KnownModel(context=128_000, images=True)),
    (r"grok-(2-vision|vision)", KnownModel(context=32_000, images=True)),
    (r"grok-[4-9]", KnownModel(context=256_000, images=True)),
    (r"grok", KnownModel(context=128_000)),
    (r"llama-?4", KnownModel(context=128_000, images=True)),
    (r"llama-?3\.2-(11b-|90b-)?vision", KnownModel(context=128_000, images=True)),
    (r"(meta-)?llama-?3\.[1-3]", KnownModel(context=128_000)),
    (r"(meta-)?llama-?3", KnownModel(context=8_000)),
    (r"pixtral|mistral-(small|medium)", KnownModel(context=128_000, images=True)),
    (r"mistral-large|ministral|codestral|devstral|magistral", KnownModel(context=128_000)),
    (r"qwen[\d.]*-?vl|qvq", KnownModel(context=32_000, images=True)),
    (r"qwen[\d.]*-?omni", KnownModel(context=32_000, images=True, audio=True)),
    (r"qwen3-(coder|max|next)", KnownModel(context=256_000)),
    (r"deepseek", KnownModel(context=64_000)),
    (r"kimi-k2", KnownModel(context=128_000)),
    (r"glm-[\d.]+v", KnownModel(context=64_000, images=True)),
    (r"glm-[45]", KnownModel(context=128_000)),
    (r"command-", KnownModel(context=128_000)),
    (r"phi-?4", KnownModel(context=16_000)),
    (r"llava|bakllava|moondream|minicpm-v", KnownModel(context=8_000, images=True)),
)


def find(id_: str) -> KnownModel:
    """Return what is known of a model by its name at the endpoint; the defaults if it is unknown."""
    name = id_.lower().rsplit("/", 1)[-1]
    return next((known for begins, known in KNOWN_MODELS if re.match(begins, name)), KnownModel())
