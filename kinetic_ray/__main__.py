"""`python -m kinetic_ray` is the command `kinetic`."""

from kinetic_ray.cli.main import main

if __name__ == "__main__":
    main()
