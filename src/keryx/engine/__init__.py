"""The engine: takes messages in, runs agents, brings answers out. It decides; the store keeps; surfaces show."""
