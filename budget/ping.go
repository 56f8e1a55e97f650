package budget

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Ping asks the server that has the keys of a hash tag, such as an org's id or a pool's,
// for anything. An answer is no error,
// whatever it says.
func (s *Store) Ping(ctx context.Context, tag string) error {
	err := s.rdb.Exists(ctx, key(tag, "leases")).Err()
	var answer redis.Error
	if errors.As(err, &answer) {
		return nil
	}
	return err
}
