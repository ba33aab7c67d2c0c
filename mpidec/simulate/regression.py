"""Logistic regression for the simulation: samples, objective, the gradients of all ranks at once, and the optimum."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit

from mpidec.errors import UserError
from mpidec.train.data.libsvm import read

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

BUNDLED = "breast-cancer"
PRECISION = 1e-10  # to which the optimum is known at least
ROUNDS = 200  # of the solver
POLISHES = 20  # Newton steps after it, of which one or two do


@dataclass(frozen=True)
class Regression:
    """f(x) = 1/m sum_k log(1 + exp(-b_k a_k^T x)) + (regularization / 2) norm2(x)^2, in float64, without an intercept.

    ``features``: the a_k as rows, CSR of shape ``(m, p)``; ``labels``: the b_k, -1 or +1, of shape ``(m,)``. f is
    ``regularization``-strongly convex.
    """

    features: Any
    labels: Vector
    regularization: float

    @property
    def size(self) -> tuple[int, int]:
        """``(m, p)``: samples and features."""
        samples, features = self.features.shape
        return int(samples), int(features)

    def objective(self, x: Vector) -> float:
        """f(x); ``x``: shape ``(p,)``."""
        losses = np.logaddexp(0.0, -self.labels * (self.features @ x))
        return float(losses.mean() + self.regularization / 2 * (x @ x))

    def gradient(self, x: Vector) -> Vector:
        """Of f at ``x``; both of shape ``(p,)``."""
        coefficients = _slopes(self.features @ x, self.labels) / len(self.labels)
        slope: Vector = self.features.T @ coefficients + self.regularization * x
        return slope

    def hessian_product(self, x: Vector, direction: Vector) -> Vector:
        """The Hessian of f at ``x`` times ``direction``; all of shape ``(p,)``."""
        probabilities = expit(self.features @ x)
        curvatures = probabilities * (1 - probabilities) / len(self.labels)
        product: Vector = self.features.T @ (curvatures * (self.features @ direction)) + self.regularization * direction
        return product

    def gradients(self, x: Vector, samples: Indices, weights: Vector) -> Vector:
        """Each rank's gradient of its own batch at its own model: ``weights`` times the mean loss, regularized.

        ``x`` and what is returned: shape ``(n, p)``; ``samples``: indices of shape ``(n, batch)``; ``weights``: shape
        ``(n,)``.
        """
        (ranks, width), batch = x.shape, samples.shape[1]
        chosen = self.features[samples.ravel()]
        # Rank i reads the columns from i p on: one sparse matrix with a block for each rank.
        entries = np.diff(chosen.indptr[::batch])
        columns = chosen.indices + np.repeat(np.arange(ranks, dtype=np.int64) * width, entries)
        blocks = csr_matrix((chosen.data, columns, chosen.indptr), shape=(ranks * batch, ranks * width))
        coefficients = _slopes(blocks @ x.ravel(), self.labels[samples.ravel()]) * np.repeat(weights / batch, batch)
        slopes: Vector = (blocks.T @ coefficients).reshape(ranks, width) + self.regularization * x
        return slopes


def _slopes(products: Vector, labels: Vector) -> Vector:
    """Derivatives of log(1 + exp(-b z)) by z, for the ``products`` z = a^T x and the ``labels`` b."""
    slopes: Vector = -labels * expit(-labels * products)
    return slopes


class Optimum(NamedTuple):
    """Where f is least, shape ``(p,)``; f there; and what f there exceeds its minimum by at most."""

    x: Vector
    objective: float
    certificate: float


def optimum(problem: Regression) -> Optimum:
    """The minimum of ``problem``, to ``PRECISION`` at least.

    The certificate is norm2(gradient)^2 / (2 regularization), which bounds f - min f by strong convexity. Raises
    ``UserError`` where round-off does not let it fall so far.
    """
    limit = math.sqrt(2 * problem.regularization * PRECISION)  # of the gradient's norm
    try:
        with np.errstate(all="ignore"):
            solved = minimize(
                problem.objective,
                np.zeros(problem.size[1]),
                method="trust-ncg",
                jac=problem.gradient,
                hessp=problem.hessian_product,
                options={"gtol": limit, "maxiter": ROUNDS},
            )
    except ValueError:  # what scipy raises for an overflow
        raise UserError("features this large overflow the objective: scale them to about 1") from None
    x: Vector = solved.x
    gradient = problem.gradient(x)
    # The solver compares values of f, which stop to differ long before its gradient is zero: the last steps are plain.
    for _ in range(POLISHES):
        product = functools.partial(problem.hessian_product, x)
        step, _ = cg(LinearOperator((len(x), len(x)), matvec=product, dtype=x.dtype), -gradient)
        closer = problem.gradient(x + step)
        if not np.linalg.norm(closer) < np.linalg.norm(gradient):
            break
        x, gradient = x + step, closer
    certificate = float(gradient @ gradient) / (2 * problem.regularization)
    if not certificate <= PRECISION:
        raise UserError(
            f"with --regularization {problem.regularization:g} the optimum is known to {certificate:.0e} only, where "
            f"{PRECISION:.0e} is needed: raise it, or scale the features to about 1"
        )
    return Optimum(x, problem.objective(x), certificate)


def load(name: str, regularization: float | None = None) -> Regression:
    """The bundled data set, or the LIBSVM file ``name`` as it is; ``regularization``: 1 / m where it is ``None``.

    Raises ``UserError`` for a file that cannot be read, and for one that holds no two classes.
    """
    features, values = bundled() if name.lower().replace("_", "-") == BUNDLED else _of_file(name)
    classes = np.unique(values)
    if len(classes) != 2:
        shown = ", ".join(f"{value:g}" for value in classes[:5]) + ", .." * (len(classes) > 5)
        raise UserError(
            f"logistic regression needs two classes, but {name} has {len(classes)} ({shown}): take a file whose lines "
            "begin with one of two labels"
        )
    labels = np.where(values == classes[1], 1.0, -1.0)
    return Regression(csr_matrix(features), labels, 1 / len(labels) if regularization is None else regularization)


def bundled() -> tuple[Vector, Vector]:
    """569 tumours with 30 measures each, scaled to mean 0 and variance 1; 0: malignant, 1: benign (from UCI)."""
    from sklearn.datasets import load_breast_cancer

    measures, benign = load_breast_cancer(return_X_y=True)
    return (measures - measures.mean(0)) / measures.std(0), benign.astype(np.float64)


def _of_file(path: str) -> tuple[Any, Vector]:
    if not Path(path).exists():
        raise UserError(f"--data is {BUNDLED} or the path of a LIBSVM file: got {path}, which does not exist")
    (samples,) = read([path])
    return samples
