// The kernel of the state hash. csrc/memory/state_hash.h defines the hash; its words (tile, row,
// lane, turn, mix, merge, settle) are the names here. A lane of a tile is a thread, so a row is one
// coalesced load of a warp. A warp takes a tile, adds its value to a register, and goes on with the
// tile that is as many tiles further as there are warps. At the end of a span, one atomic addition
// brings the register into the span's sum.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device_api.h"
#include "cuda/device_guard.h"

namespace pccl::cuda {
namespace {

using Word = unsigned long long;  // the type that CUDA's atomics and shuffles take
static_assert(sizeof(Word) == 8);

constexpr unsigned kLanes = 32;
constexpr unsigned kRowBytes = kLanes * sizeof(Word);
constexpr unsigned kTileRows = 64;
constexpr unsigned kTileBytes = kTileRows * kRowBytes;

constexpr unsigned kTurn1 = 0x9E3779B1u;
constexpr unsigned kTurn2 = 0x85EBCA77u;
constexpr Word kSettle = 0x9E3779B97F4A7C15u;
constexpr Word kLaneStart = 0xC2B2AE3D27D4EB4Fu;
constexpr Word kHighHalf = 0xFFFFFFFF00000000u;

constexpr unsigned kBlockThreads = 256;

// One span of a call. Its tiles have the numbers from `first_tile` on among all tiles of the call.
struct Entry {
  const std::byte* data;
  Word bytes;
  Word first_tile;
};

// --- The functions of the definition -------------------------------------------------------------

__host__ __device__ __forceinline__ Word turn(Word s, unsigned k) {
  const Word t = static_cast<Word>(static_cast<unsigned>(s)) * k + (s & kHighHalf);
  return (t >> 32) | (t << 32);
}

__host__ __device__ __forceinline__ Word mix(Word s) { return turn(turn(s, kTurn1), kTurn2); }

__host__ __device__ __forceinline__ Word merge(Word a, Word b) { return mix(mix(a) ^ b); }

__host__ __device__ __forceinline__ Word settle(Word s) { return mix(mix(mix(s ^ kSettle))); }

// --- Loads ---------------------------------------------------------------------------------------

// kWords words that follow each other. One load if they are aligned. Otherwise each word comes from
// two aligned words, and then up to 7 bytes behind the last word are read, too.
template <unsigned kWords, bool kAligned>
__device__ __forceinline__ void load_words(const std::byte* at, Word (&words)[kWords]) {
  if constexpr (kAligned && kWords == 2) {
    const ulonglong2 pair = *reinterpret_cast<const ulonglong2*>(at);
    words[0] = pair.x;
    words[1] = pair.y;
  } else if constexpr (kAligned) {
    words[0] = *reinterpret_cast<const Word*>(at);
  } else {
    const unsigned skipped = reinterpret_cast<uintptr_t>(at) % sizeof(Word);
    const auto* from = reinterpret_cast<const Word*>(at - skipped);
#pragma unroll
    for (unsigned w = 0; w < kWords; ++w) {
      words[w] = from[w];
      if (skipped > 0) words[w] = words[w] >> 8 * skipped | from[w + 1] << (64 - 8 * skipped);
    }
  }
}

// The word at `at`, of which only the bytes before `end` exist; the others are zero.
__device__ __forceinline__ Word load_end(const std::byte* at, const std::byte* end) {
  Word word = 0;
  for (unsigned i = 0; i < sizeof(Word) && at + i < end; ++i) {
    word |= static_cast<Word>(at[i]) << 8 * i;
  }
  return word;
}

// --- A tile --------------------------------------------------------------------------------------

// Takes `rows` rows. kBatch loads are in flight at a time.
template <unsigned kWords, unsigned kBatch, bool kAligned>
__device__ __forceinline__ void take_rows(Word (&lanes)[kWords], const std::byte* from,
                                          unsigned rows) {
  for (unsigned row = 0; row < rows; row += kBatch) {
    Word words[kBatch][kWords];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (row + i < rows) load_words<kWords, kAligned>(from + i * kRowBytes, words[i]);
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
#pragma unroll
      for (unsigned w = 0; w < kWords; ++w) {
        if (row + i < rows) lanes[w] = mix(lanes[w] ^ words[i][w]);
      }
    }
    from += kBatch * kRowBytes;
  }
}

// The value of the tile at `data`. Thread `thread` of the 32 / kWords threads of the tile has the
// lanes from thread * kWords on. The value is valid in thread 0. `bytes` are left in the span.
template <unsigned kWords, unsigned kBatch, bool kAligned>
__device__ __forceinline__ Word tile_value(const std::byte* data, Word bytes, Word tile,
                                           unsigned thread, unsigned mask) {
  Word lanes[kWords];
#pragma unroll
  for (unsigned w = 0; w < kWords; ++w) {
    lanes[w] = (kLanes * tile + thread * kWords + w + 1) * kLaneStart;
  }
  const std::byte* from = data + thread * kWords * sizeof(Word);
  if (bytes >= kTileBytes + sizeof(Word)) {
    take_rows<kWords, kBatch, kAligned>(lanes, from, kTileRows);
  } else {
    // A last row of which not all bytes may be loaded as words goes byte by byte.
    const Word readable = kAligned || bytes < sizeof(Word) ? bytes : bytes - sizeof(Word);
    const auto rows = static_cast<unsigned>(readable / kRowBytes);
    take_rows<kWords, kBatch, kAligned>(lanes, from, rows);
    for (unsigned at = rows * kRowBytes; at < bytes && at < kTileBytes; at += kRowBytes) {
#pragma unroll
      for (unsigned w = 0; w < kWords; ++w) {
        lanes[w] = mix(lanes[w] ^ load_end(from + at + w * sizeof(Word), data + bytes));
      }
    }
  }
#pragma unroll
  for (unsigned half = kLanes / 2; half >= kWords; half /= 2) {
#pragma unroll
    for (unsigned w = 0; w < kWords; ++w) {
      const Word other = __shfl_down_sync(mask, lanes[w], half / kWords, kLanes / kWords);
      lanes[w] = merge(lanes[w], other);
    }
  }
#pragma unroll
  for (unsigned half = kWords / 2; half > 0; half /= 2) {
#pragma unroll
    for (unsigned w = 0; w < half; ++w) lanes[w] = merge(lanes[w], lanes[w + half]);
  }
  return settle(lanes[0]);
}

// --- All tiles -----------------------------------------------------------------------------------

// The entry that has the tile: the last one that begins at it or before it.
__device__ __forceinline__ unsigned entry_of(const Entry* entries, unsigned count, Word tile) {
  unsigned low = 0;
  unsigned high = count;  // the entry is in [low, high)
  while (high - low > 1) {
    const unsigned middle = low + (high - low) / 2;
    if (entries[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <unsigned kWords, unsigned kBatch, unsigned kResident>
__global__ void __launch_bounds__(kBlockThreads, kResident)
    hash_tiles(const Entry* entries, unsigned count, Word tiles, Word* sums) {
  constexpr unsigned kThreads = kLanes / kWords;  // of a tile
  const unsigned thread = threadIdx.x % kThreads;
  const unsigned mask = (kWords == 1 ? ~0u : (1u << kThreads) - 1)
                        << (threadIdx.x % 32 / kThreads * kThreads);
  const Word teams = static_cast<Word>(gridDim.x) * (blockDim.x / kThreads);
  Word tile = static_cast<Word>(blockIdx.x) * (blockDim.x / kThreads) + threadIdx.x / kThreads;
  while (tile < tiles) {
    const unsigned index = entry_of(entries, count, tile);
    const Entry entry = entries[index];
    const Word end = index + 1 < count ? entries[index + 1].first_tile : tiles;
    const bool aligned = reinterpret_cast<uintptr_t>(entry.data) % (kWords * sizeof(Word)) == 0;
    Word sum = 0;
    for (; tile < end; tile += teams) {
      const Word number = tile - entry.first_tile;
      const std::byte* data = entry.data + number * kTileBytes;
      const Word bytes = entry.bytes - number * kTileBytes;
      sum += aligned ? tile_value<kWords, kBatch, true>(data, bytes, number, thread, mask)
                     : tile_value<kWords, kBatch, false>(data, bytes, number, thread, mask);
    }
    if (thread == 0) atomicAdd(&sums[index], sum);
  }
}

// --- The host's part -----------------------------------------------------------------------------

Word tiles_of(Word bytes) { return bytes / kTileBytes + (bytes % kTileBytes != 0); }

// Both workspaces have the same layout: the entries, then the sums.
constexpr size_t kWorkspaceBytes = sizeof(Entry) + sizeof(Word);  // of one span

Word* sums_of(void* workspace, size_t count) {
  return reinterpret_cast<Word*>(static_cast<Entry*>(workspace) + count);
}

// Writes the table into a workspace. Returns the number of all tiles.
Word fill(void* workspace, const pccl_cuda_span* spans, size_t count) {
  auto* entries = static_cast<Entry*>(workspace);
  Word* sums = sums_of(workspace, count);
  Word tiles = 0;
  for (size_t i = 0; i < count; ++i) {
    entries[i] = {static_cast<const std::byte*>(spans[i].data), spans[i].bytes, tiles};
    sums[i] = 0;
    tiles += tiles_of(spans[i].bytes);
  }
  return tiles;
}

struct Variant {
  void (*kernel)(const Entry*, unsigned, Word, Word*);
  unsigned words;   // kWords
  unsigned blocks;  // at most, for each multiprocessor
};

cudaError_t launch(const Variant& variant, Entry* entries, unsigned count, Word tiles, Word* sums,
                   int device, cudaStream_t stream) {
  int processors = 0;
  const cudaError_t status =
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  const Word tiles_per_block = kBlockThreads / (kLanes / variant.words);
  const Word needed = (tiles + tiles_per_block - 1) / tiles_per_block;
  const Word most = static_cast<Word>(processors) * variant.blocks;
  const auto blocks = static_cast<unsigned>(needed < most ? needed : most);
  void* arguments[] = {&entries, &count, &tiles, &sums};
  return cudaLaunchKernel(variant.kernel, dim3(blocks), dim3(kBlockThreads), arguments, 0, stream);
}

int hash(const Variant& variant, const pccl_cuda_span* spans, size_t count, void* device_workspace,
         void* host_workspace, int device, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (count > UINT32_MAX) return cudaErrorInvalidValue;
  const DeviceGuard guard(device);
  if (guard.status() != cudaSuccess) return guard.status();
  const Word tiles = fill(host_workspace, spans, count);
  if (tiles == 0) return cudaSuccess;
  cudaError_t status = cudaMemcpyAsync(device_workspace, host_workspace, count * kWorkspaceBytes,
                                       cudaMemcpyHostToDevice, stream);
  if (status != cudaSuccess) return status;
  Word* const sums = sums_of(device_workspace, count);
  status = launch(variant, static_cast<Entry*>(device_workspace), static_cast<unsigned>(count),
                  tiles, sums, device, stream);
  if (status != cudaSuccess) return status;
  return cudaMemcpyAsync(sums_of(host_workspace, count), sums, count * sizeof(Word),
                         cudaMemcpyDeviceToHost, stream);
}

// The first one is used. The others exist until a GPU has shown which one is the fastest.
constexpr Variant kVariants[] = {
    {hash_tiles<1, 16, 4>, 1, 4}, {hash_tiles<1, 16, 4>, 1, 64}, {hash_tiles<1, 8, 4>, 1, 4},
    {hash_tiles<1, 8, 4>, 1, 64}, {hash_tiles<1, 16, 3>, 1, 3},  {hash_tiles<1, 16, 3>, 1, 64},
    {hash_tiles<1, 32, 2>, 1, 2}, {hash_tiles<1, 32, 2>, 1, 64}, {hash_tiles<2, 4, 4>, 2, 4},
    {hash_tiles<2, 4, 4>, 2, 64}, {hash_tiles<2, 8, 3>, 2, 3},   {hash_tiles<2, 8, 3>, 2, 64},
    {hash_tiles<2, 16, 2>, 2, 2}, {hash_tiles<2, 16, 2>, 2, 64},
};

}  // namespace
}  // namespace pccl::cuda

using pccl::cuda::Entry;
using pccl::cuda::Word;

size_t pccl_cuda_hash_workspace(size_t count) { return count * pccl::cuda::kWorkspaceBytes; }

int pccl_cuda_hash(const pccl_cuda_span* spans, size_t count, void* device_workspace,
                   void* host_workspace, int device, void* stream) {
  return pccl::cuda::hash(pccl::cuda::kVariants[0], spans, count, device_workspace, host_workspace,
                          device, static_cast<cudaStream_t>(stream));
}

extern "C" PCCL_CUDA_FUNCTION int pccl_cuda_hash_variant(unsigned variant,
                                                         const pccl_cuda_span* spans, size_t count,
                                                         void* device_workspace,
                                                         void* host_workspace, int device,
                                                         void* stream) {
  if (variant >= sizeof(pccl::cuda::kVariants) / sizeof(pccl::cuda::Variant)) {
    return cudaErrorInvalidValue;
  }
  return pccl::cuda::hash(pccl::cuda::kVariants[variant], spans, count, device_workspace,
                          host_workspace, device, static_cast<cudaStream_t>(stream));
}

void pccl_cuda_hash_values(const void* host_workspace, size_t count, uint64_t* hashes) {
  const auto* entries = static_cast<const Entry*>(host_workspace);
  const auto* sums = reinterpret_cast<const Word*>(entries + count);
  for (size_t i = 0; i < count; ++i) {
    hashes[i] = pccl::cuda::settle(pccl::cuda::merge(sums[i], entries[i].bytes));
  }
}
