"""What a person reads: the leaderboard, the comparison with the baseline, the launch script."""
