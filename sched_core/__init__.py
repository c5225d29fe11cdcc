"""The scheduler core: plans, passes, the executor and the simulated device."""
