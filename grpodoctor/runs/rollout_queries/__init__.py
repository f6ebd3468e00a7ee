"""Finding responses among all that a run recorded, without loading their texts."""
