"""REW: reward, accuracy and held-out evaluation."""
