package guard

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
)

// idPrefix begins the ids of holds. A call id follows, which is derived from the owner, the part of the
// org and a nonce; then the part, in partDigits, and the nonce. So an id proves whose it is without the
// store, and every process finds the hold, however the org is spread by then.
const (
	idPrefix   = "hold_"
	partDigits = 2
)

// NewID returns an id for a hold. nonce must be unguessable or chosen by the caller; empty means
// random.
func (hs *Holds) NewID(c Caller, nonce string) string {
	if nonce == "" {
		nonce = rand.Text()
	}
	part := hs.guard.budget.Place(ledger.Call{Org: c.Org.ID, User: c.User, IP: c.IP}).Part
	nonce = fmt.Sprintf("%0*d%s", partDigits, part, strings.ToLower(nonce))
	return idPrefix + wire.DerivedCallID(now(), ownerOf(c, nonce)) + nonce
}

// Made returns when the id of a caller's hold was made; zero if it is not the caller's.
func (hs *Holds) Made(c Caller, id string) time.Time {
	_, made, _ := callOf(c, id)
	return made
}

func ownerOf(c Caller, nonce string) string {
	return strings.Join([]string{string(HoldEndpoint), c.Org.ID, c.Owner(), strings.ToLower(nonce)}, "\x00")
}

// callOf returns the call of a hold's id and when it was made. ErrNoHold: the caller does not own it.
func callOf(c Caller, id string) (ledger.Call, time.Time, error) {
	rest, ok := strings.CutPrefix(id, idPrefix)
	callLen := len(wire.DerivedCallID(time.Time{}, ""))
	if !ok || len(rest) <= callLen+partDigits {
		return ledger.Call{}, time.Time{}, ErrNoHold
	}
	callID, nonce := rest[:callLen], rest[callLen:]
	at, ok := wire.CallTime(callID)
	if !ok || wire.DerivedCallID(at, ownerOf(c, nonce)) != callID {
		return ledger.Call{}, time.Time{}, ErrNoHold
	}
	part, err := strconv.Atoi(nonce[:partDigits])
	if err != nil || part < 1 {
		return ledger.Call{}, time.Time{}, ErrNoHold
	}
	return ledger.Call{
		ID: callID, Attempt: 1, Org: c.Org.ID, User: c.User, Key: c.Key, IP: c.IP, Endpoint: string(HoldEndpoint),
		Labels: c.Labels, Run: c.Run, Part: part,
	}, at, nil
}
