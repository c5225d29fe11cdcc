"""What the GPU's backend uses of PyCUDA, on the host's memory."""
