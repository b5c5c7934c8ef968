"""The competitors: each spends launches on a surface and names an incumbent after some of them."""
