#include "gpu/collision/ccd_narrow.clh"

/* Single queries; see CcdQueries in ccd_queries.h. coordinates: 24 a query, the four points at the start, then at the end. errors: bound on
   what the coordinates of a query are off. */
kernel void ccd_answer_queries(uint count, uint kind, Real separation, Real tolerance, uint max_steps, global const Real* coordinates,
                               global const Real* errors, global CcdAnswer* answers) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  Real3 points[8];
  for (uint k = 0; k < 8; ++k) points[k] = vload3(8 * i + k, coordinates);
  CcdAnswer answer;
  CcdPair pair;
  answer.is_finite = ccd_load(kind, points, points + 4, separation, errors[i], &pair);
  answer.is_hit = 1;
  answer.toi = 0.0f;
  answer.steps = 0;
  if (answer.is_finite) {
    const CcdOutcome outcome = ccd_march(&pair, tolerance, max_steps);
    answer.is_hit = outcome.is_hit;
    answer.steps = outcome.steps;
    answer.toi = ccd_round_down(outcome.toi);
  }
  answers[i] = answer;
}
