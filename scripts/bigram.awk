# Mean negative log-likelihood, in nats a byte, of the last tenth of a text under an add-one bigram model of the rest:
# what a model that has learnt anything must beat.
#
#     od -An -v -tu1 -w1 FILE | awk -v bytes="$(wc -c <FILE)" -f bigram.awk
BEGIN { split_at = bytes - int(bytes / 10) }
NR <= split_at {
    if (!($1 in known)) { known[$1]; n_known++ }
    if (NR > 1) { pairs[last, $1]++; firsts[last]++ }
}
NR > split_at {
    if (NR > split_at + 1) { loss -= log((pairs[last, $1] + 1) / (firsts[last] + n_known)); n++ }
}
{ last = $1 }
END { if (n) printf "%.4f\n", loss / n; else exit 1 }
