"""Augmentation of whole batches on the device, where torchvision has none."""
