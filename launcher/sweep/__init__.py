"""`gpucost gc`: finding everything that was ever made, judging it, and removing the orphans."""
