#ifndef MONITOR_NAMES_H
#define MONITOR_NAMES_H

#include <stddef.h>

/*
 * Names that are derived from digests (cli-and-storage 3.7, 4.2, 7.2, 8.1).
 * Every returned string is allocated.
 */

/* "id-" and the SHA-256 of the bytes in 64 lower-case hex digits. */
#define ID_PART_SIZE 68
void id_part(char out[ID_PART_SIZE], const void *, size_t);

/* Last component of the default identity path: "my-vm.json" (4.2). */
char *identity_name(const char *worker);

/* HOME/.config/librechat/code/NAME (4.2). */
char *identity_default_path(const char *home, const char *worker);

/* Directory of the worker's markers and lock: .../quarantines/D/W (7.2). */
char *state_dir(const char *home, const char *canonical, const char *worker);

/* Last component of a marker: the R part and ".json" (7.2). */
char *marker_name(const char *root);

/*
 * Default workspace (8.1). url is the effective URL with its trailing slashes
 * removed and not otherwise normalised; security is the public key text or
 * the static token.
 */
char *default_workspace_path(const char *home, const char *url,
    const char *security, const char *worker, const char *id);

/*
 * policyDigest (3.7). domains is the final list, sorted; it and the GitHub
 * identity text count only with native commands.
 */
#define POLICY_DIGEST_SIZE 65
#define GITHUB_NONE        "github-auth:none:github.com"
void policy_digest(char out[POLICY_DIGEST_SIZE], const char *policy, int native,
    char *const *domains, size_t n, const char *github);

/*
 * A copy without leading and trailing ECMAScript white space (3.3); bytes
 * that are not UTF-8 are never white space.
 */
char *trimmed(const char *);

#endif
