// Replay kernels: softmax, SpecInfer's rounds, and ResiSpec's rejection paths, all in float64.
//
// Compiled by NVRTC without any header, for compute capability 6.0 and above, with -fmad=false, so that a
// product and a sum round as they do on the CPU. The tests compile the same text as C++ and run it with one
// thread of the processor for each thread of a block.
//
// blockDim.x is a power of two, at most MAX_THREADS. A row is V numbers, one after the other.

#define MAX_THREADS 1024
#define MAX_ROUNDS 16
#define MAX_HOLES 2

#define KERNEL extern "C" __global__ void __launch_bounds__(MAX_THREADS)

typedef long long i64;
typedef unsigned short u16;

// Sums over a block

// Every thread gets the sum. A term passes through log2(blockDim.x) additions, whatever the timing.
__device__ double block_sum(double value) {
  __shared__ double partial[MAX_THREADS];
  __syncthreads();  // every thread has read what the call before left here
  partial[threadIdx.x] = value;
  __syncthreads();
  for (unsigned width = blockDim.x / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) partial[threadIdx.x] += partial[threadIdx.x + width];
    __syncthreads();
  }
  return partial[0];
}

__device__ double block_max(double value) {
  __shared__ double partial[MAX_THREADS];
  __syncthreads();
  partial[threadIdx.x] = value;
  __syncthreads();
  for (unsigned width = blockDim.x / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) partial[threadIdx.x] = fmax(partial[threadIdx.x], partial[threadIdx.x + width]);
    __syncthreads();
  }
  return partial[0];
}

// Logits to probabilities -------------------------------------------------------------------------------------

// Both 2-byte types come as their bits; every value of them is a float32.
struct Float16 { u16 bits; };
struct Bfloat16 { u16 bits; };

__device__ inline double widen(Float16 x) {
  const unsigned sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);  // inf, NaN
  const double size = rest < 0x400u ? rest * (1.0 / 16777216.0)  // 2^-24
                                    : (double)__uint_as_float((rest << 13) + 0x38000000u);
  return sign ? -size : size;
}
__device__ inline double widen(Bfloat16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline double widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }

// One block a row. At least one logit of a row is finite; -inf is allowed, temperature > 0.
template <class T>
__device__ void softmax_row(const T* logits, double* out, i64 vocab, double temperature) {
  logits += blockIdx.x * vocab;
  out += blockIdx.x * vocab;
  double best = -1.7976931348623157e308;
  for (i64 x = threadIdx.x; x < vocab; x += blockDim.x) best = fmax(best, widen(logits[x]));
  best = block_max(best);
  double total = 0.0;
  for (i64 x = threadIdx.x; x < vocab; x += blockDim.x) {
    const double weight = exp((widen(logits[x]) - best) / temperature);
    out[x] = weight;
    total += weight;
  }
  total = block_sum(total);
  for (i64 x = threadIdx.x; x < vocab; x += blockDim.x) out[x] /= total;
}

KERNEL softmax_float16(const Float16* logits, double* out, i64 vocab, double temperature) {
  softmax_row(logits, out, vocab, temperature);
}
KERNEL softmax_bfloat16(const Bfloat16* logits, double* out, i64 vocab, double temperature) {
  softmax_row(logits, out, vocab, temperature);
}
KERNEL softmax_float32(const float* logits, double* out, i64 vocab, double temperature) {
  softmax_row(logits, out, vocab, temperature);
}
KERNEL softmax_float64(const double* logits, double* out, i64 vocab, double temperature) {
  softmax_row(logits, out, vocab, temperature);
}

// SpecInfer's rounds, fused -----------------------------------------------------------------------------------

__device__ inline double accept_ratio(double residual, double q) {
  return q > residual ? residual / q : (residual > 0.0 ? 1.0 : 0.0);
}

// norm((R - q)_+), or R where that has no mass.
__device__ inline double next_residual(double residual, double q, double mass) {
  return mass > 0.0 ? fmax(residual - q, 0.0) / mass : residual;
}

// One block a row. Nothing but the mass of each residual is kept between rounds: every pass follows its tokens
// from the target through the rounds before, so a row of n rounds reads target and draft n + 1 times and
// writes `placed` once. `accepted` is (rows, rounds).
KERNEL specinfer_rounds(const double* target, const double* draft, double* placed, double* accepted, i64 vocab,
                        int rounds) {
  target += blockIdx.x * vocab;
  draft += blockIdx.x * vocab;
  placed += blockIdx.x * vocab;
  accepted += (i64)blockIdx.x * rounds;
  double mass[MAX_ROUNDS], weight[MAX_ROUNDS + 1];
  weight[0] = 1.0;
  for (int round = 0; round < rounds; ++round) {
    double yes = 0.0, no = 0.0, left = 0.0;
    for (i64 x = threadIdx.x; x < vocab; x += blockDim.x) {
      const double q = draft[x];
      double residual = target[x];
      for (int i = 0; i < round; ++i) residual = next_residual(residual, q, mass[i]);
      const double proposed = weight[round] * q, emitted = proposed * accept_ratio(residual, q);
      yes += emitted;
      no += proposed - emitted;  // not 1 - yes: this keeps its digits near 0
      left += fmax(residual - q, 0.0);
    }
    yes = block_sum(yes);
    weight[round + 1] = block_sum(no);
    mass[round] = block_sum(left);
    if (threadIdx.x == 0) accepted[round] = yes;
  }
  for (i64 x = threadIdx.x; x < vocab; x += blockDim.x) {
    const double q = draft[x];
    double residual = target[x], sum = 0.0;
    for (int i = 0; i < rounds; ++i) {
      sum += weight[i] * q * accept_ratio(residual, q);
      residual = next_residual(residual, q, mass[i]);
    }
    placed[x] = sum + weight[rounds] * residual;
  }
}

// ResiSpec's rejection paths ----------------------------------------------------------------------------------
//
// See kernels/paths/shaped.py for the recursion. All arrays are in ascending order of p/q ("rank order").

// Inputs and sums of one row, as they lie in the arrays that the host passes.
struct Row {
  // From `order` (rows, 5, V + 1); of the first three the last entry is unused.
  const double *ratio, *p, *q, *q_before, *p_before;
  // From `sums` (rows, 3, V + 1): sum of w t and of w over atoms, by the rank of t; what they put on holes.
  double *atom_t, *atom_w, *correction;
  // From `tallies` (rows, 3, n + 1), by number of rejections; of the last only its first entry is used.
  double *acceptance, *unexpanded, *paths;
  int vocab;
};
// Additions to the sums are atomic, hence in no fixed order. All terms are non-negative (those of `acceptance`
// up to their own rounding), so a sum of N terms is off by at most N - 1 roundings, whatever the order.

// A path of rejected tokens.
struct Path {
  double t;      // its probability
  double c;      // share of the residual before in its own residual
  double own_p;  // p of the token rejected last, 0 if it was a hole before
  double share;  // coefficient of its U in what is placed after n rejections
  i64 parent;
  int row, own, rank;  // rank of t: how many tokens can be rejected next
  int holes, hole[MAX_HOLES];
};

static_assert(sizeof(Path) == 64, "the host allocates 64 bytes a path");

// What the rejection of one more token leads to.
struct Child {
  double t, own, d, free;
  int rank;
};

__device__ inline Row row_of(const double* order, double* sums, double* tallies, i64 row, i64 vocab,
                             int candidates) {
  const i64 wide = vocab + 1;
  order += row * 5 * wide;
  sums += row * 3 * wide;
  tallies += row * 3 * (candidates + 1);
  Row r = {order, order + wide, order + 2 * wide, order + 3 * wide, order + 4 * wide,
           sums, sums + wide, sums + 2 * wide,
           tallies, tallies + candidates + 1, tallies + 2 * (candidates + 1), (int)vocab};
  return r;
}

// Number of tokens with p/q < t.
__device__ inline int rank_below(const Row& row, double t) {
  int low = 0, high = row.vocab;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (row.ratio[middle] < t) low = middle + 1; else high = middle;
  }
  return low;
}

// Mass by which t q exceeds p.
__device__ inline double excess(const Row& row, double t, int rank) {
  return fmax(t * row.q_before[rank] - row.p_before[rank], 0.0);
}

// What min(t q, p) has on rank j.
__device__ inline double clipped(const Row& row, double t, int j) { return fmin(t * row.q[j], row.p[j]); }

// The i-th token that can be rejected after the path: all ranks below its own, then the holes beyond; or -1.
__device__ inline int next_rejected(const Path& path, int i) {
  if (i < path.rank) return i;
  const int j = path.hole[i - path.rank];
  return j < path.rank ? -1 : j;
}

// Rejects the i-th token after the path, rank j; false where that has probability 0.
__device__ inline bool reject(const Row& row, const Path& path, int i, int& j, Child& child) {
  j = next_rejected(path, i);
  if (j < 0) return false;
  child.free = row.p[j];
  for (int h = 0; h < path.holes; ++h)
    if (path.hole[h] == j) child.free = 0.0;
  child.t = path.t * row.q[j] - child.free;
  if (!(child.t > 0.0)) return false;
  child.rank = rank_below(row, child.t);
  child.own = fmin(child.t * row.q[j], child.free);
  child.d = excess(row, child.t, child.rank) + child.own;
  for (int h = 0; h < path.holes; ++h) child.d += clipped(row, child.t, path.hole[h]);
  return true;
}

// The share of U before in U after the rejection of rank j.
__device__ inline double kept_share(const Row& row, const Path& path, int j, const Child& child) {
  return child.d > 0.0 ? child.d / (path.t * (1.0 - row.q[j]) + child.d) : 0.0;
}

// The path and rank j, as a path; its token becomes a hole unless it is one or has p = 0.
__device__ inline Path extended(const Path& path, i64 parent, int j, const Child& child, double c) {
  Path next = path;
  next.t = child.t;
  next.c = c;
  next.own_p = child.free;
  next.share = 0.0;
  next.parent = parent;
  next.own = j;
  next.rank = child.rank;
  if (child.free > 0.0) next.hole[next.holes++] = j;
  return next;
}

__device__ inline void add_atom(const Row& row, int rank, double t, double w) {
  atomicAdd(row.atom_t + rank, w * t);
  atomicAdd(row.atom_w + rank, w);
}

// One thread a row: the empty path, and what accepting the first candidate places.
KERNEL start_paths(const double* order, double* sums, double* tallies, i64 vocab, int candidates, i64 rows,
                   Path* paths, i64* cost) {
  const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= rows) return;
  const Row row = row_of(order, sums, tallies, at, vocab, candidates);
  const int rank = rank_below(row, 1.0);
  const double d = excess(row, 1.0, rank);
  add_atom(row, rank, 1.0, 1.0);
  row.acceptance[0] = 1.0 - d;
  const Path path = {1.0, 0.0, 0.0, 0.0, -1, (int)at, -1, d > 0.0 ? rank : 0, 0, {-1, -1}};
  paths[at] = path;
  cost[at] = path.rank;
}

// One block a path: rejects every token that is not the last candidate. Children with D >= theta * cost are
// appended to `children` (room for all is the host's business), the others stay unexpanded. `theta` is
// (rows, n + 1); `level` is how many candidates the parents reject.
KERNEL expand_paths(const double* order, double* sums, double* tallies, i64 vocab, int candidates,
                    const Path* parents, i64 first, const double* theta, int level, Path* children, i64* cost,
                    unsigned long long* count) {
  const i64 parent = first + blockIdx.x;
  const Path path = parents[parent];
  const Row row = row_of(order, sums, tallies, path.row, vocab, candidates);
  const double least = theta[path.row * (i64)(candidates + 1) + level + 1];
  double accepted = 0.0, unexpanded = 0.0, evaluated = 0.0, in_holes[MAX_HOLES] = {0.0, 0.0};
  for (int i = threadIdx.x; i < path.rank + path.holes; i += blockDim.x) {
    int j;
    Child child;
    if (!reject(row, path, i, j, child)) continue;
    evaluated += 1.0;
    accepted += child.t - child.d;
    if (child.d > 0.0 && child.d >= least * (child.rank + path.holes + 1)) {
      const Path next = extended(path, parent, j, child, kept_share(row, path, j, child));
      const unsigned long long slot = atomicAdd(count, 1ull);
      children[slot] = next;
      cost[slot] = next.rank + next.holes;
      continue;
    }
    unexpanded += child.d;
    add_atom(row, child.rank, child.t, 1.0);
    atomicAdd(row.correction + j, child.own);
    for (int h = 0; h < path.holes; ++h) in_holes[h] += clipped(row, child.t, path.hole[h]);
  }
  accepted = block_sum(accepted);
  unexpanded = block_sum(unexpanded);
  evaluated = block_sum(evaluated);
  for (int h = 0; h < MAX_HOLES; ++h) in_holes[h] = block_sum(in_holes[h]);
  if (threadIdx.x != 0) return;
  atomicAdd(row.acceptance + level + 1, accepted);
  // These paths reject level + 1 candidates, and D counts the next one too.
  atomicAdd(row.unexpanded + level + 2, unexpanded);
  atomicAdd(row.paths, evaluated);
  for (int h = 0; h < path.holes; ++h) atomicAdd(row.correction + path.hole[h], in_holes[h]);
}

// One block a path: rejects the last candidate, and places U after it.
KERNEL reject_last(const double* order, double* sums, double* tallies, i64 vocab, int candidates, Path* parents,
                   i64 first) {
  const Path path = parents[first + blockIdx.x];
  const Row row = row_of(order, sums, tallies, path.row, vocab, candidates);
  double share = 0.0, evaluated = 0.0, in_holes[MAX_HOLES] = {0.0, 0.0};
  for (int i = threadIdx.x; i < path.rank + path.holes; i += blockDim.x) {
    int j;
    Child child;
    if (!reject(row, path, i, j, child)) continue;
    evaluated += 1.0;
    const double c = kept_share(row, path, j, child), w = 1.0 - c;
    share += c;
    add_atom(row, child.rank, child.t, w);
    atomicAdd(row.correction + j, w * child.own + c * child.free);
    for (int h = 0; h < path.holes; ++h) in_holes[h] += w * clipped(row, child.t, path.hole[h]);
  }
  share = block_sum(share);
  evaluated = block_sum(evaluated);
  for (int h = 0; h < MAX_HOLES; ++h) in_holes[h] = block_sum(in_holes[h]);
  if (threadIdx.x != 0) return;
  parents[first + blockIdx.x].share = share;
  atomicAdd(row.paths, evaluated);
  for (int h = 0; h < path.holes; ++h) atomicAdd(row.correction + path.hole[h], in_holes[h]);
}

// One thread a path whose children are all done: places what it emits itself, and its part of what they leave.
KERNEL close_paths(const double* order, double* sums, double* tallies, i64 vocab, int candidates,
                   const Path* paths, i64 many, Path* parents) {
  const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= many) return;
  const Path path = paths[at];
  const Row row = row_of(order, sums, tallies, path.row, vocab, candidates);
  const double w = 1.0 + path.share * (1.0 - path.c), up = path.share * path.c;
  add_atom(row, path.rank, path.t, w);
  atomicAdd(&parents[path.parent].share, up);
  atomicAdd(row.correction + path.own, up * path.own_p);
  for (int h = 0; h < path.holes; ++h)
    atomicAdd(row.correction + path.hole[h], w * clipped(row, path.t, path.hole[h]));
}
