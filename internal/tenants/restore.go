package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RestoreActor is the actor of the audit entries of records that Redis had lost.
const RestoreActor = "restore"

// restoreStep is how many records are written again in one script.
const restoreStep = 100

// older reports whether a record was last changed before another. Requests for more of a limit do not say
// when: what Redis has of them is kept.
func older(text, than string) bool {
	var a, b Stamp
	return json.Unmarshal([]byte(text), &a) == nil && json.Unmarshal([]byte(than), &b) == nil &&
		a.Updated.Before(b.Updated)
}

// versionOf returns the number of a change; 0 if there is none.
func versionOf(change string) int64 {
	number, _, _ := strings.Cut(change, "-")
	n, _ := strconv.ParseInt(number, 10, 64)
	return n
}

// diverged reports whether Redis lacks a change that this process has read: it was emptied, has the data of
// a backup, or a replica took over that had not received the change. If only the stream no longer reaches
// back to the change, the numbers have not gone back and no other change has its number.
func (s *Store) diverged(ctx context.Context, read, last string) (bool, error) {
	known := versionOf(read)
	if known == 0 || versionOf(last) < known {
		return known > 0, nil
	}
	number := strconv.FormatInt(known, 10)
	list, err := s.rdb.XRange(ctx, changesKey, number, number).Result()
	if err != nil {
		return false, unavailable("read changes", err)
	}
	return len(list) > 0 && list[0].ID != read, nil
}

// recall returns next, as read from Redis, with the records of old that Redis lost. Otherwise what they
// restrict would be open again: a braked subject, stopped spending, a disabled or rotated key of the file.
// Run writes them again.
func (s *Store) recall(ctx context.Context, old, next *Snapshot) (*Snapshot, error) {
	lost, err := s.diverged(ctx, old.last, next.last)
	if err != nil {
		return nil, err
	}
	if lost {
		for r, record := range old.records() {
			text, err := json.Marshal(record)
			if err != nil {
				return nil, err
			}
			s.lost[r.String()] = string(text)
		}
	}
	if len(s.lost) == 0 {
		return next, nil
	}
	list, err := s.rdb.XRange(ctx, changesKey, "-", "+").Result()
	if err != nil {
		return nil, unavailable("read changes", err)
	}
	changed, d := changedBy(list), next.draft()
	for fields := range slices.Chunk(slices.Collect(maps.Keys(s.lost)), scanStep) {
		texts, err := s.texts(ctx, fields)
		if err != nil {
			return nil, err
		}
		for i, field := range fields {
			if texts[i] == "" && !changed[field] { // otherwise it was deleted
				s.set(d, field, s.lost[field])
			} else {
				s.take(d, field, texts[i])
			}
		}
	}
	return d.finish(next.last), nil
}

// restore writes the records again that Redis lost, unless another process has.
func (s *Store) restore(ctx context.Context) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	for fields := range slices.Chunk(slices.Sorted(maps.Keys(s.lost)), restoreStep) {
		texts, err := s.texts(ctx, fields)
		if err != nil {
			return err
		}
		var changes []Change
		for i, field := range fields {
			r, err := parseRef(field)
			if ours := s.lost[field]; err == nil && (texts[i] == "" || older(texts[i], ours)) {
				changes = append(changes, Change{Ref: r, Old: Text(texts[i]), New: json.RawMessage(ours)})
			}
		}
		if len(changes) > 0 {
			err = s.commit(ctx, AuditEntry{
				At: time.Now().UTC(), Actor: RestoreActor, Action: "records.restore",
				Target: strconv.Itoa(len(changes)) + " records", Reason: "redis had lost them",
			}, changes...)
			if errors.Is(err, ErrConflict) { // another process writes them
				return nil
			}
			if err != nil {
				return err
			}
			s.log.WarnContext(ctx, "redis had lost runtime settings, written again", "records", len(changes))
		}
		for _, field := range fields {
			delete(s.lost, field)
		}
	}
	return nil
}
