"""One of RAIN's two servers cheats, alone or with clients that help it."""
