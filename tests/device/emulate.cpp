// Runs a kernel of replay.cu on the CPU: one thread of the processor for each thread of a block, blocks one
// after the other, a barrier for __syncthreads.
//
//     emulate KERNEL BLOCKS THREADS ARGUMENT...
//
// An argument is a number, or for a pointer a file that holds the array; it is written back afterwards.
// Plain C where it can be, since it is compiled many times.

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utility>

struct Index { unsigned x; };
static thread_local Index threadIdx;
static Index blockIdx, blockDim;
static pthread_barrier_t barrier;

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(threads)

static void __syncthreads() { pthread_barrier_wait(&barrier); }
static float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
static double atomicAdd(double* at, double value) {
  double old, sum;
  __atomic_load(at, &old, __ATOMIC_SEQ_CST);
  do sum = old + value;
  while (!__atomic_compare_exchange(at, &old, &sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}

#include REPLAY_SOURCE

// The widening alone, for all values of a 2-byte type.
static void widen_float16(const Float16* from, double* to) { to[blockIdx.x] = widen(from[blockIdx.x]); }
static void widen_bfloat16(const Bfloat16* from, double* to) { to[blockIdx.x] = widen(from[blockIdx.x]); }

static FILE* opened(const char* path, const char* mode) {
  FILE* file = fopen(path, mode);
  if (!file) { perror(path); exit(3); }
  return file;
}

// An argument; an array has its exact size, so that a sanitizer sees every access beyond it.
struct Argument {
  const char* text;
  void* array;
  long size;
};

template <class T> struct Cast {
  static T from(const Argument& argument) { return static_cast<T>(atof(argument.text)); }
  static void load(Argument&) {}
  static void save(Argument&) {}
};
template <class T> struct Cast<T*> {
  static T* from(const Argument& argument) { return static_cast<T*>(argument.array); }
  static void load(Argument& argument) {
    FILE* file = opened(argument.text, "rb");
    fseek(file, 0, SEEK_END);
    argument.size = ftell(file);
    rewind(file);
    argument.array = malloc(argument.size);
    if (fread(argument.array, 1, argument.size, file) != (size_t)argument.size) exit(3);
    fclose(file);
  }
  static void save(Argument& argument) {
    FILE* file = opened(argument.text, "wb");
    fwrite(argument.array, 1, argument.size, file);
    fclose(file);
    free(argument.array);
  }
};

// What every thread of a block runs.
struct Work {
  void (*run)(void* kernel, const Argument* arguments);
  void* kernel;
  const Argument* arguments;
  unsigned blocks, thread;
};

static void* all_blocks(void* given) {
  const Work* work = static_cast<Work*>(given);
  threadIdx.x = work->thread;
  for (unsigned block = 0; block < work->blocks; ++block) {
    if (threadIdx.x == 0) blockIdx.x = block;
    __syncthreads();
    work->run(work->kernel, work->arguments);
    __syncthreads();
  }
  return nullptr;
}

static void in_threads(Work work, unsigned threads) {
  pthread_t handles[MAX_THREADS];
  Work works[MAX_THREADS];
  blockDim.x = threads;
  pthread_barrier_init(&barrier, nullptr, threads);
  for (unsigned k = 0; k < threads; ++k) {
    works[k] = work;
    works[k].thread = k;
    if (pthread_create(&handles[k], nullptr, all_blocks, &works[k])) exit(3);
  }
  for (unsigned k = 0; k < threads; ++k) pthread_join(handles[k], nullptr);
}

template <class Indices, class... A> struct Launch;
template <size_t... I, class... A> struct Launch<std::index_sequence<I...>, A...> {
  static void run(void* kernel, const Argument* arguments) {
    reinterpret_cast<void (*)(A...)>(kernel)(Cast<A>::from(arguments[I])...);
  }
  static void launch(void (*kernel)(A...), unsigned blocks, unsigned threads, Argument* arguments) {
    (Cast<A>::load(arguments[I]), ...);
    in_threads({run, reinterpret_cast<void*>(kernel), arguments, blocks, 0}, threads);
    (Cast<A>::save(arguments[I]), ...);
  }
};

template <class... A> int launch(void (*kernel)(A...), int count, char** words) {
  Argument arguments[32] = {};
  if (count != 3 + (int)sizeof...(A)) { fprintf(stderr, "%zu arguments needed\n", sizeof...(A)); return 3; }
  for (size_t i = 0; i < sizeof...(A); ++i) arguments[i].text = words[3 + i];
  Launch<std::index_sequence_for<A...>, A...>::launch(kernel, atoi(words[1]), atoi(words[2]), arguments);
  return 0;
}

int main(int argc, char** argv) {
#define CASE(kernel) if (!strcmp(argv[1], #kernel)) return launch(kernel, argc - 1, argv + 1);
  CASE(widen_float16)
  CASE(widen_bfloat16)
  CASE(softmax_float16)
  CASE(softmax_bfloat16)
  CASE(softmax_float32)
  CASE(softmax_float64)
  CASE(specinfer_rounds)
  CASE(start_paths)
  CASE(expand_paths)
  CASE(reject_last)
  CASE(close_paths)
  fprintf(stderr, "no kernel %s\n", argv[1]);
  return 3;
}
