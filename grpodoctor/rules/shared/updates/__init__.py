"""What single updates of a policy clip and change."""
