"""BERT_FP: BERT after fine-grained domain pre-training on the corpus' own dialogues (Han et al. 2021)."""

from icalib.data.encoding import Budget
from icalib.encoders.transformer import TransformerEncoder
from icalib.methods import papers
from icalib.methods.method import Method
from icalib.regimes.supervised import Supervised
from icalib.training.domain_pretraining.utterance_relevance import UtteranceRelevance
from icalib.training.settings import TrainingSettings

presets = {
    "paper-icast": papers.BERT_FP,
    "light": {
        "domain_pretraining.max_windows": 8000,
        "domain_pretraining.max_length": 128,
        "domain_pretraining.training.epochs": 2,
        "domain_pretraining.training.learning_rate": 5e-5,
        "domain_pretraining.training.head_learning_rate": 1e-3,
        # as `bert`: of few labels, the published schedule makes too few updates
        "regime.training.epochs": 5,
        "regime.training.learning_rate": 5e-5,
        "regime.training.head_learning_rate": 1e-3,
        "regime.training.batch_size": 16,
        "regime.training.train_negatives": None,
    },
}


def method() -> Method:
    """The published settings: domain pre-training by `UtteranceRelevance`, then 1:1 fine-tuning at a constant rate.

    256 tokens are 153 of the context and 100 of the answer here; the authors cut whichever is longer. They clip
    gradients after the step, which does nothing; 5 is what they meant. Their augmentation of the training pairs (every
    utterance of a context as an answer) is left out.
    """
    training = TrainingSettings(
        epochs=2,
        learning_rate=1e-5,
        warmup_fraction=0.0,
        schedule="constant",
        max_grad_norm=5.0,
        batch_size=32,
        train_negatives=1,
    )
    return Method(
        encoder=TransformerEncoder.Config(
            budget=Budget(max_context_tokens=153, max_candidate_tokens=100), turn_separators=True
        ),
        similarity=None,
        intent=None,
        domain_pretraining=UtteranceRelevance.Config(),
        regime=Supervised.Config(training=training),
    )
