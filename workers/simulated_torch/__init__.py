"""A simulated PyTorch device: its ops are tasks that a schedule advances, and its memory is watched for races."""
