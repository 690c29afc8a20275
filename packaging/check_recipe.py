"""Parses the conda recipe with rattler-build's own parser and renders it: `make recipes` runs it."""

from pathlib import Path

import rattler_build

recipe = rattler_build.Stage0Recipe.from_file(str(Path(__file__).parent / "conda" / "recipe.yaml"))
for variant in recipe.render(rattler_build.VariantConfig(), None):
    print(variant)
