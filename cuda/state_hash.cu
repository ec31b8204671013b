// The kernel of the state hash. csrc/memory/state_hash.h defines the hash; its words (tile, row,
// lane, turn, mix, merge, settle) are the names here. A lane of a tile is a thread, so a row is one
// coalesced load of a warp. With W warps, each warp takes every W-th tile, and adds the values of
// its tiles in a register. At the end of a span, one atomic addition adds the register to the
// span's sum.

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
constexpr unsigned kBlockTiles = kBlockThreads / kLanes;  // tiles that a CUDA block takes at a time
// On an H200, these two values are the fastest for tensors that are not aligned. For aligned
// tensors, they are 2 % slower than the fastest values (tests/gpu/README.md).
constexpr unsigned kProcessorBlocks = 4;  // blocks per multiprocessor, all resident
constexpr unsigned kBatch = 8;            // rows that a thread loads before it uses the first one

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

// A word that does not begin at a multiple of 8 comes from two words that do. Then up to 7 bytes
// behind the word are read, too.
template <bool kAligned>
__device__ __forceinline__ Word load_word(const std::byte* at) {
  if constexpr (kAligned) {
    return *reinterpret_cast<const Word*>(at);
  } else {
    const unsigned skipped = reinterpret_cast<uintptr_t>(at) % sizeof(Word);
    const auto* from = reinterpret_cast<const Word*>(at - skipped);
    Word word = from[0];
    if (skipped > 0) word = word >> 8 * skipped | from[1] << (64 - 8 * skipped);
    return word;
  }
}

// The word at `at`. Only its bytes before `end` exist; the others are zero.
__device__ __forceinline__ Word load_end(const std::byte* at, const std::byte* end) {
  Word word = 0;
  for (unsigned i = 0; i < sizeof(Word) && at + i < end; ++i) {
    word |= static_cast<Word>(at[i]) << 8 * i;
  }
  return word;
}

// --- A tile --------------------------------------------------------------------------------------

// Takes `rows` rows into a lane.
template <bool kAligned>
__device__ __forceinline__ void take_rows(Word& lane, const std::byte* from, unsigned rows) {
  for (unsigned row = 0; row < rows; row += kBatch) {
    Word words[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (row + i < rows) words[i] = load_word<kAligned>(from + i * kRowBytes);
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (row + i < rows) lane = mix(lane ^ words[i]);
    }
    from += kBatch * kRowBytes;
  }
}

// The value of the tile at `data`. Each thread of the warp has a lane; the value is valid in thread
// 0. `bytes`: the bytes of the span from `data` on.
template <bool kAligned>
__device__ __forceinline__ Word tile_value(const std::byte* data, Word bytes, Word tile,
                                           unsigned thread) {
  Word lane = (kLanes * tile + thread + 1) * kLaneStart;
  const std::byte* from = data + thread * sizeof(Word);
  if (bytes >= kTileBytes + sizeof(Word)) {
    take_rows<kAligned>(lane, from, kTileRows);
  } else {
    // Rows with bytes that may not be loaded as words are read byte by byte.
    const Word readable = kAligned || bytes < sizeof(Word) ? bytes : bytes - sizeof(Word);
    const auto rows = static_cast<unsigned>(readable / kRowBytes);
    take_rows<kAligned>(lane, from, rows);
    for (unsigned at = rows * kRowBytes; at < bytes && at < kTileBytes; at += kRowBytes) {
      lane = mix(lane ^ load_end(from + at, data + bytes));
    }
  }
#pragma unroll
  for (unsigned half = kLanes / 2; half > 0; half /= 2) {
    lane = merge(lane, __shfl_down_sync(~0u, lane, half));
  }
  return settle(lane);
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

__global__ void __launch_bounds__(kBlockThreads, kProcessorBlocks)
    hash_tiles(const Entry* entries, unsigned count, Word tiles, Word* sums) {
  const unsigned thread = threadIdx.x % kLanes;
  const Word warps = static_cast<Word>(gridDim.x) * (blockDim.x / kLanes);
  Word tile = static_cast<Word>(blockIdx.x) * (blockDim.x / kLanes) + threadIdx.x / kLanes;
  while (tile < tiles) {
    const unsigned index = entry_of(entries, count, tile);
    const Entry entry = entries[index];
    const Word end = index + 1 < count ? entries[index + 1].first_tile : tiles;
    const bool aligned = reinterpret_cast<uintptr_t>(entry.data) % sizeof(Word) == 0;
    Word sum = 0;
    for (; tile < end; tile += warps) {
      const Word number = tile - entry.first_tile;
      const std::byte* data = entry.data + number * kTileBytes;
      const Word bytes = entry.bytes - number * kTileBytes;
      sum += aligned ? tile_value<true>(data, bytes, number, thread)
                     : tile_value<false>(data, bytes, number, thread);
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

// Writes the entries and zero sums into a workspace. Returns the number of all tiles.
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

cudaError_t launch(Entry* entries, unsigned count, Word tiles, Word* sums, int device,
                   cudaStream_t stream) {
  int processors = 0;
  const cudaError_t status =
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  const Word needed = (tiles + kBlockTiles - 1) / kBlockTiles;
  const Word most = static_cast<Word>(processors) * kProcessorBlocks;
  const auto blocks = static_cast<unsigned>(needed < most ? needed : most);
  void* arguments[] = {&entries, &count, &tiles, &sums};
  return cudaLaunchKernel(hash_tiles, dim3(blocks), dim3(kBlockThreads), arguments, 0, stream);
}

int hash(const pccl_cuda_span* spans, size_t count, void* device_workspace, void* host_workspace,
         int device, cudaStream_t stream) {
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
  status = launch(static_cast<Entry*>(device_workspace), static_cast<unsigned>(count), tiles, sums,
                  device, stream);
  if (status != cudaSuccess) return status;
  return cudaMemcpyAsync(sums_of(host_workspace, count), sums, count * sizeof(Word),
                         cudaMemcpyDeviceToHost, stream);
}

}  // namespace
}  // namespace pccl::cuda

using pccl::cuda::Entry;
using pccl::cuda::Word;

size_t pccl_cuda_hash_workspace(size_t count) { return count * pccl::cuda::kWorkspaceBytes; }

int pccl_cuda_hash(const pccl_cuda_span* spans, size_t count, void* device_workspace,
                   void* host_workspace, int device, void* stream) {
  return pccl::cuda::hash(spans, count, device_workspace, host_workspace, device,
                          static_cast<cudaStream_t>(stream));
}

void pccl_cuda_hash_values(const void* host_workspace, size_t count, uint64_t* hashes) {
  const auto* entries = static_cast<const Entry*>(host_workspace);
  const auto* sums = reinterpret_cast<const Word*>(entries + count);
  for (size_t i = 0; i < count; ++i) {
    hashes[i] = pccl::cuda::settle(pccl::cuda::merge(sums[i], entries[i].bytes));
  }
}
