package redisconn

// Pairs calls fn for every two strings that a scan returns: the fields of a hash and their values, or the
// members of a sorted set and their scores. It ends at the first error. What is changed meanwhile may be
// missing or come twice.
func Pairs(scan func(cursor uint64) Scan, fn func(name, value string) error) error {
	for cursor := uint64(0); ; {
		page, next, err := scan(cursor).Result()
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(page); i += 2 {
			if err := fn(page[i], page[i+1]); err != nil {
				return err
			}
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}
