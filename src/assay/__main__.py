"""`python -m assay` is `assay`: what `torchrun -m assay train …` starts."""

from assay.cli.app import main

if __name__ == "__main__":
    main()
