"""The tables of agent frameworks that keep their state in the store: checkpoints and memories of LangGraph, sessions of the Agent Development Kit."""
