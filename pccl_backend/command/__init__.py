"""The commands that ask a master or keep its tokens. Nothing here imports torch."""
