"""Which packages a built Relay has. Everything else about it is in pyproject.toml.

`templates/` and `static/` stand beside the packages in a checkout; built, they are inside of `relay`: the folder
that packages are installed to belongs to everybody.
"""

from setuptools import find_namespace_packages, setup

setup(
    packages=[
        *find_namespace_packages(include=["relay", "relay.*", "deliveries", "deliveries.*", "ledger", "ledger.*"]),
        *(f"relay.{folder}" for folder in ("templates", "static")),
    ],
    package_dir={"relay.templates": "templates", "relay.static": "static"},
)
