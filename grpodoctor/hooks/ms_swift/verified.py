"""The versions of ms-swift whose callbacks, keys and trainer attributes were tested."""

VERIFIED = ("4.6.0",)
