# Long-lived workers in Perl.
#
#   use lib $ENV{RQ_SHARE};
#   use RQWorker;
#   while (my $message = RQWorker::next_message()) {
#       $message->run("halfway");
#       $message->done("hello $message->{RQ_PARAM1}");
#   }
#
# A message is a hash of the values that another script finds in its environment, as
# characters. The working directory is that of the message, if it has one.

package RQWorker;
use strict;
use warnings;
use JSON::PP ();
use IO::Handle;

open(my $say, '>&=', 3) or die "descriptor 3: $!";
open(my $hear, '<&=', 4) or die "descriptor 4: $!";
binmode($say, ':encoding(UTF-8)');
$say->autoflush(1);
STDOUT->autoflush(1);

# Says that the worker is ready and waits for a message; nothing at the end.
sub next_message {
    print $say "ready\n";
    my $line = <$hear>;
    return unless defined $line;
    my $message = bless JSON::PP::decode_json($line), 'RQWorker';
    my $directory = $message->{RQ_MSG_DIR} // '/';
    chdir $directory or die "$directory: $!";
    return $message;
}

sub run     { shift; _say('run', @_) }
sub done    { shift; _say('done', @_) }
sub result  { shift; _say('result', @_) }
sub relayed { shift; _say('relayed', @_) }
sub err     { shift; _say('err', @_) }
sub resend  { my (undef, $seconds, $reason) = @_; _say('resend', "$seconds-" . ($reason // '')) }

# Copies it to another queue; returns the full id.
sub dup {
    my (undef, $dest, $seconds) = @_;
    _say('dup', ($seconds // 0) . "-X-$dest");
    my ($word, $text) = split ' ', scalar(<$hear>), 2;
    chomp $text;
    die "$text\n" unless $word eq 'ok';
    return $text;
}

sub _say {
    my ($word, $text) = @_;
    $text = join ' ', split ' ', $text // '';
    print $say "$word $text\n";
}

1;
