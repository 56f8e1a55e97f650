package settings

import (
	"slices"
	"strings"
)

// theirs has words that people write for our names, as other programs have them; without _ and -.
var theirs = map[string]string{
	"addresses": "host hosts addr server port",
	"amount":    "budget limit max value usd dollars",
	"anthropic": "claude",
	"api_key":   "key token secret",
	"base_url":  "url endpoint apibase host",
	"check":     "validate lint verify",
	"cost":      "usd dollars money spend spending budget price",
	"create":    "add new",
	"delete":    "remove rm",
	"doctor":    "status health",
	"enforce":   "hard block refuse deny true on",
	"from":      "since after start",
	"gemini":    "google vertex",
	"get":       "show info describe view",
	"group":     "team department",
	"groups":    "teams departments",
	"input":     "prompt inputcostpertoken",
	"kind":      "type vendor",
	"limits":    "budget budgets maxbudget monthlybudget budgetlimit ratelimit ratelimits",
	"list":      "ls show get",
	"listen":    "host port bind address",
	"off":       "false disabled none",
	"openai":    "ollama vllm openrouter groq deepseek litellm together",
	"org":       "tenant company account",
	"output":    "json csv yaml format completion outputcostpertoken",
	"providers": "modellist upstreams backends",
	"refuse":    "deny reject block error",
	"requests":  "rpm calls",
	"serve":     "start run server",
	"shadow":    "warn soft monitor alert dryrun log",
	"stop":      "true on",
	"tokens":    "tpm",
	"tz":        "timezone zone",
	"update":    "edit modify change set",
	"url":       "slack webhook endpoint",
	"wait":      "queue throttle delay",
	"window":    "period interval duration per every reset",
}

// Near returns at most three of the known names that were probably meant by an unknown one, the most similar first.
// Case and punctuation do not count.
func Near(name string, known []string) []string {
	near := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return off(name, k) == unlike })
	slices.SortStableFunc(near, func(a, b string) int { return off(name, a) - off(name, b) })
	near = slices.Compact(near)
	if far := slices.IndexFunc(near, func(k string) bool { return off(name, k) > off(name, near[0])+1 }); far >= 0 {
		near = near[:far]
	}
	return near[:min(3, len(near))]
}

// DidYouMean returns the end of an error about an unknown name: the most similar of the known names. It is empty if
// none is similar.
func DidYouMean(name string, known []string) string {
	near := Near(name, known)
	if len(near) == 0 {
		return ""
	}
	return `; did you mean "` + near[0] + `"?`
}

// Hint is DidYouMean, or if no known name is similar and there are few, lists all.
func Hint(name string, known []string) string {
	near := DidYouMean(name, known)
	if near != "" || len(known) == 0 || len(known) > 20 {
		return near
	}
	return "; known: " + strings.Join(known, ", ")
}

// Close reports whether a name is a known one with at most one mistake, or another word for it.
func Close(name, known string) bool { return off(name, known) <= 1 }

// Larger than a number of mistakes: one name contains the other, and they are not alike.
const (
	within = 3
	unlike = 100
)

// off returns how many mistakes turn a known name into another, 0 for another word for it.
func off(name, known string) int {
	word, other := letters(name), letters(known)
	if word == other || slices.Contains(strings.Fields(theirs[known]), word) {
		return 0
	}
	shorter, longer := min(len(word), len(other)), max(len(word), len(other))
	most := max(1, (len(word)+1)/3)
	if longer-shorter <= most && longer < unlike {
		if d := distance(word, other); d <= most && d < shorter {
			return d
		}
	}
	if shorter >= 3 && (strings.Contains(word, other) || strings.Contains(other, word)) {
		return max(within, most)
	}
	return unlike
}

// letters drops case, and characters that people write differently, such as the dot in 4.5.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-._/: ", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// distance returns the number of single-character edits and swaps of adjacent characters between
// two names.
func distance(a, b string) int {
	prev2, prev := []int(nil), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev = prev, row
	}
	return prev[len(b)]
}
