"""Inference engines that a run can drive, and the devices that they run on."""
