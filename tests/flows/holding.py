"""How a test holds a flow run in its middle: between what deploys it and what it is then."""

HOLD = "MIXER_TEST_HOLD"
"""Environment variable: a file that holds the flow run while it is there."""
HELD_SHARD = 5
"""The flow run waits when it has committed this one."""
