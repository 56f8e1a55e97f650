package outage

import (
	"strconv"
	"strings"
)

// epoch is the value of epochKey: "<Unix us of its creation>.<random>", followed by ".lost" or
// ".accepted" after a loss of data. Older versions wrote only the random part.
type epoch struct {
	id      string // without the state
	created int64  // us; 0: written by an older version
	state   string
}

func parseEpoch(text string) epoch {
	created, rest, dotted := strings.Cut(text, ".")
	at, err := strconv.ParseInt(created, 10, 64)
	if !dotted || err != nil {
		return epoch{id: text}
	}
	random, state, _ := strings.Cut(rest, ".")
	return epoch{id: created + "." + random, created: at, state: state}
}

func (e epoch) String() string {
	if e.state == "" {
		return e.id
	}
	return e.id + "." + e.state
}

// lostAt returns when the data were found lost, in us; 0 if they are intact, or if an operator
// accepted the loss.
func (e epoch) lostAt() int64 {
	if e.state == epochLost {
		return e.created
	}
	return 0
}

// replaces reports whether the data marked by e follow a loss of the data marked by old. An epoch
// older than old is that of a backup.
func (e epoch) replaces(old epoch) bool {
	return old.id != "" && e.id != old.id && (e.created == 0 || e.created >= old.created)
}
