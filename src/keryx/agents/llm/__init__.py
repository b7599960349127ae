"""The agent for OpenAI-compatible models. Keep this file empty: `config` imports `models` and `local_model` without openai."""
