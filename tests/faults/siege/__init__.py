"""The siege: hostile people, networks, models, plug-ins and neighbours act at once while well-behaved chats go on.

python -m tests.faults.siege --minutes 10
"""
