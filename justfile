# The short names of what `cargo xtask` does. `just` alone lists them.

default:
    @just --list --unsorted

# Everything that must hold before a change goes in; what CI runs.
ci:
    cargo xtask ci

# The same.
test:
    cargo xtask test

# kill -9 under load, release build: `just torture sqlite --messages 100000 --kills 200 --seed 42`
torture *args:
    cargo xtask torture {{args}}

# Benchmarks, release build.
bench *args:
    cargo xtask bench {{args}}

# Write the pages that come from the program itself: docs/reference/, docs/man/.
reference:
    cargo xtask reference

# The ten largest files and functions.
sizes:
    cargo xtask sizes

# Format the code.
fmt:
    cargo fmt --all

# Licences, advisories and banned crates; needs cargo-deny, and the network for the advisories.
deny:
    cargo deny check
