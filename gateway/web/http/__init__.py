"""HTTP below the routes: headers, bodies, errors, limits."""
