"""Behind `search_spaces.sampler.QuietlaneSampler`: models of the objective and of crashes, and how they choose."""
