"""The Nexmark benchmark: an auction site's events, and stateful queries over them."""
