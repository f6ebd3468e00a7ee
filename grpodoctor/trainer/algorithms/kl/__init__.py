"""Estimators of the KL divergence to the reference, as penalties in the loss, one file each."""
