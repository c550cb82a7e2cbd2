"""The phases of training loops: their accuracy and their cost."""
