"""`make release-rehearsal`: a release as its users meet it, from `dist` and `target/maven`."""
