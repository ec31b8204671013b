// aead_pump: CPU seconds per GB that AES-128-GCM costs by itself, for hosts.py: the bytes of a large
// tensor are sealed into records of a small buffer, and opened from there into another tensor.
//   aead_pump MIB
// prints "seal X s/GB, open Y s/GB", of one pass after a warm-up.
#define _GNU_SOURCE
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kContent = 16384, kTag = 16, kHeader = 5, kRecords = 7 };

static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void require(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "aead_pump: %s\n", what);
  exit(1);
}

// Each record has a nonce of its own: its number.
static void begin(EVP_CIPHER_CTX* context, unsigned long number, const unsigned char* header) {
  unsigned char nonce[12] = {0};
  int size = 0;
  memcpy(nonce + 4, &number, sizeof number);
  require(EVP_CipherInit_ex2(context, NULL, NULL, nonce, -1, NULL) == 1 &&
              EVP_CipherUpdate(context, NULL, &size, header, kHeader) == 1,
          "a record does not begin");
}

int main(int count, char** words) {
  require(count == 2 && atoi(words[1]) > 0, "usage: aead_pump MIB");
  const size_t batch = (size_t)kRecords * kContent;
  const size_t bytes = ((size_t)atoi(words[1]) << 20) / batch * batch;
  unsigned char* const from = malloc(bytes);
  unsigned char* const to = malloc(bytes);
  unsigned char* const buffer = malloc((size_t)kRecords * (kHeader + kContent + kTag));
  require(bytes > 0 && from != NULL && to != NULL && buffer != NULL, "no memory");
  for (size_t i = 0; i < bytes; ++i) from[i] = (unsigned char)(i * 2654435761u >> 13);
  const unsigned char key[16] = {1};
  const unsigned char header[kHeader] = {23, 3, 3, (kContent + kTag) >> 8, (kContent + kTag) & 255};
  EVP_CIPHER* const cipher = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
  EVP_CIPHER_CTX* const sealing = EVP_CIPHER_CTX_new();
  EVP_CIPHER_CTX* const opening = EVP_CIPHER_CTX_new();
  require(EVP_CipherInit_ex2(sealing, cipher, key, NULL, 1, NULL) == 1 &&
              EVP_CipherInit_ex2(opening, cipher, key, NULL, 0, NULL) == 1,
          "no AES-128-GCM");
  double seal = 0, open = 0;
  unsigned long number = 0;
  for (int pass = 0; pass < 2; ++pass) {  // the first one is a warm-up
    seal = open = 0;
    for (size_t at = 0; at < bytes; at += batch, number += kRecords) {
      const double begun = cpu_seconds();
      unsigned char* record = buffer;
      int size = 0;
      for (int i = 0; i < kRecords; ++i, record += kHeader + kContent + kTag) {
        memcpy(record, header, kHeader);
        begin(sealing, number + (unsigned long)i, header);
        unsigned char* const out = record + kHeader;
        require(EVP_CipherUpdate(sealing, out, &size, from + at + (size_t)i * kContent,
                                 kContent) == 1 &&
                    EVP_CipherFinal_ex(sealing, out + kContent, &size) == 1 &&
                    EVP_CIPHER_CTX_ctrl(sealing, EVP_CTRL_AEAD_GET_TAG, kTag, out + kContent) == 1,
                "a record is not sealed");
      }
      const double sealed = cpu_seconds();
      record = buffer;
      for (int i = 0; i < kRecords; ++i, record += kHeader + kContent + kTag) {
        begin(opening, number + (unsigned long)i, record);
        unsigned char* const out = to + at + (size_t)i * kContent;
        unsigned char* const sealed_bytes = record + kHeader;
        require(EVP_CipherUpdate(opening, out, &size, sealed_bytes, kContent) == 1 &&
                    EVP_CIPHER_CTX_ctrl(opening, EVP_CTRL_AEAD_SET_TAG, kTag,
                                        sealed_bytes + kContent) == 1 &&
                    EVP_CipherFinal_ex(opening, out + kContent, &size) == 1,
                "a record is not opened");
      }
      seal += sealed - begun;
      open += cpu_seconds() - sealed;
    }
  }
  require(memcmp(from, to, bytes) == 0, "the bytes differ");
  printf("seal %.4f s/GB, open %.4f s/GB\n", seal / ((double)bytes / 1e9),
         open / ((double)bytes / 1e9));
  return 0;
}
